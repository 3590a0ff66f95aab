"""Assembles the status page: one document without external assets. Reads only its own files.

The page holds no data; its script polls ``/status``. The policy allows only this script and this
style, by their hashes (Content Security Policy 3, "script-src").
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

SCRIPTS = (
    "words.js",
    "symbols.js",
    "dom.js",
    "meters.js",
    "queries.js",
    "flow.js",
    "alerts.js",
    "monitor.js",
    "driver.js",
    "page.js",
)
"""In the order in which they are joined: each file uses only names of earlier files."""
_STYLE_MARK = "/* page.css */"
_SCRIPT_MARK = "/* page.js */"


@cache
def status_page() -> bytes:
    """The document in UTF-8."""
    page = _read("page.html").replace(_STYLE_MARK, _style())
    return page.replace(_SCRIPT_MARK, _script()).encode()


@cache
def policy() -> tuple[tuple[str, str], ...]:
    """The page's HTTP headers."""
    rules = (
        "default-src 'none'",
        f"script-src {_hash(_script())}",
        f"style-src {_hash(_style())}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return (("Content-Security-Policy", "; ".join(rules)), ("Referrer-Policy", "no-referrer"))


def _style() -> str:
    return _read("page.css")


def _script() -> str:
    return "\n".join(_read(name) for name in SCRIPTS)


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"
