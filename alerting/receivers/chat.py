"""The incoming webhooks of chats: one message per incident."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ...core.secret import Secret
from ..alert import Incident
from .http import HttpPoster, post_or_less
from .receiver import (
    HttpOptions,
    ReceiverCapabilities,
    ReceiverContext,
    ReceiverType,
    UrlReceiverSettings,
)


class Channel(ABC):
    """One channel of a chat. Such webhooks take about one message a second."""

    capabilities = ReceiverCapabilities(per_minute=60.0)
    setting = "url"
    """The setting that an unusable URL is reported under."""

    def __init__(
        self,
        url: Secret,
        *,
        name: str = "",
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name or type(self).__name__.lower()
        self._external_url = external_url
        self._poster = HttpPoster(url, setting=self.setting, http=http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        full, less = self._bodies(incident)
        post_or_less(lambda body: self._checked(self._poster.post(body, wall)), full, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    @abstractmethod
    def _bodies(self, incident: Incident) -> tuple[bytes, bytes]:
        """The message, and the one that is sent when the chat refuses it."""

    @abstractmethod
    def _checked(self, answer: bytes) -> bytes:
        """The body of a 2xx answer, if it comes from the chat.

        Raises:
            HttpError: it comes from something else.

        """


def channel_type(
    settings: type[UrlReceiverSettings],
    kind: type[Channel],
    short_form: Mapping[str, str] | None = None,
) -> ReceiverType:
    """The declaration of a chat's receiver."""

    def make(given: UrlReceiverSettings, context: ReceiverContext) -> Channel:
        return kind(
            context.secret("url"),
            name=given.name,
            http=context.http,
            external_url=context.external_url,
        )

    return ReceiverType(settings, make, one_of=("url", "url_file"), short_form=short_form or {})
