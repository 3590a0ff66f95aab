"""An incident as an e-mail. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256

from ..alert import Incident
from ..details import NEXT_STEPS, details, links, members, next_steps
from ..headline import called, headline_of, status
from .encoding import shorten

MAX_SUBJECT_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 20_000


def email_message(
    incident: Incident,
    sender: str,
    to: Sequence[str],
    wall: float,
    external_url: str = "",
    *,
    minimal: bool = False,
) -> EmailMessage:
    """The message: the headline as subject, and the details as plain text unless ``minimal``."""
    message = EmailMessage()
    headline = _clean(" ".join(headline_of(incident).split()))
    firing = incident.ends_at is None
    subject = f"{incident.severity}: {headline}" if firing else headline
    # Before Python 3.13, a header decodes such words, line ends included.
    message["Subject"] = shorten(subject.replace("=?", "= ?"), MAX_SUBJECT_CHARACTERS)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Date"] = formatdate(wall)
    thread = _message_id(incident, "")
    message["Message-ID"] = _message_id(incident, f"{status(incident)} {incident.revision}")
    message["In-Reply-To"] = message["References"] = thread
    message["Auto-Submitted"] = "auto-generated"
    if firing and incident.severity == "critical":
        message["Importance"] = "high"
    text = headline if minimal else _text(incident, headline, external_url)
    message.set_content(shorten(_clean(text), MAX_TEXT_CHARACTERS) + "\n")
    return message


def _text(incident: Incident, headline: str, external_url: str) -> str:
    since = f"{incident.name} since {formatdate(incident.starts_at)}"
    ways = links(incident.alerts[0], external_url) if incident.ends_at is None else {}
    parts = [headline, _facts(incident), _lines(ways), since]
    return "\n\n".join(filter(None, parts))


def _facts(incident: Incident) -> str:
    if len(incident.alerts) == 1:
        return _lines(details(incident.alerts[0]))
    lines = {
        called(one.labels["query"]): one.annotations.get("reason", "") for one in members(incident)
    }
    steps = next_steps(incident)
    return _lines({**lines, **({NEXT_STEPS: steps} if steps else {})})


def _lines(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in facts.items())


def _clean(text: str) -> str:
    """Without control characters, and without lone surrogates of a broken exception."""
    plain = text.encode("utf-8", "replace").decode()
    return "".join(one for one in plain if one in "\n\t" or one.isprintable())


def _message_id(incident: Incident, which: str) -> str:
    """The same for every attempt to send the same message, also after a restart."""
    what = f"{incident.key}\n{incident.starts_at!r}\n{which}"
    return f"<{sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}@querypulse.invalid>"
