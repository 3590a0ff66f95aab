"""The incoming webhooks of chats: one message per incident."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.secret import Secret
from .http import HttpPoster, post_or_less
from .receiver import (
    HttpOptions,
    Receiver,
    ReceiverCapabilities,
    ReceiverContext,
    ReceiverType,
    UrlReceiverSettings,
)


class Channel:
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

    def post(
        self, full: bytes, less: bytes, wall: float, check: Callable[[bytes, str], bytes]
    ) -> None:
        """Post ``full``, or ``less`` if the chat refuses it.

        ``check`` raises ``HttpError`` for the body of a 2xx answer that is not from the chat.
        """
        place = self._poster.place
        post_or_less(lambda body: check(self._poster.post(body, wall), place), full, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()


def channel_type(
    settings: type[UrlReceiverSettings],
    kind: Callable[..., Receiver],
    short_form: Mapping[str, str] | None = None,
) -> ReceiverType:
    """The declaration of a chat's receiver."""

    def make(given: UrlReceiverSettings, context: ReceiverContext) -> Receiver:
        return kind(
            context.secret("url"),
            name=given.name,
            http=context.http,
            external_url=context.external_url,
        )

    return ReceiverType(settings, make, one_of=("url", "url_file"), short_form=short_form or {})
