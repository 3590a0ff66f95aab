"""Removes secrets from text, and from every record of our log, before it is stored or sent."""

from __future__ import annotations

import json
import logging
import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

# -- redaction names --------------------------------------------------------------------------
# Removes the values of secret names from text: ``password=...``, in any notation.


_QUOTE = r"(?:\\{0,16}[\"']|&(?:quot|apos|\#3[49]);)"
_SPACE = r"(?:\s|\\{1,4}n)"
_CALL = rf"[\w.]{{0,40}}[(\[]{_SPACE}{{0,40}}"
# A name, then the separator before its value. Anchored to the start of a word, it is tried once
# per word. Group 2: a separator of options; a plain colon may also be prose.
_NAME = re.compile(
    rf"""(?x) (?<![\w.-]) ([\w.-]+) (?:
    (
        {_QUOTE} \s{{0,3}} (?: =>? | : | -> ) \s{{0,3}}
      | {_QUOTE} \s{{0,3}} , \s{{0,9}} {_QUOTE} value {_QUOTE} \s? : \s{{0,3}}
      | {_QUOTE} \s{{0,3}} , (?= \s{{0,3}} {_QUOTE} ) \s{{0,3}}
      | {_SPACE}{{1,20}} value : \s{{0,3}}
      | \s{{0,3}} (?: =>? | -> ) \s{{0,3}}
      | %3[DdAa]
      | >
      | </name> {_SPACE}{{0,9}} <value>
      | (?<= [Aa]uth) (?= \( {_SPACE}{{0,40}} [a-zA-Z]{{0,2}} {_QUOTE} )
    )
    | \s{{0,3}} : \s{{0,3}} )"""
)
# What opens a value, such as the quote in b"..." or Some("..."), is kept, and so is its end.
_OPENING = re.compile(rf"(?:{_CALL}){{0,2}}[a-zA-Z]{{0,2}}(?:(\\*)([\"'])|&(?:quot|apos|#3[49]);)")
_INSIDE = {
    ("", '"'): re.compile(r'(?s)(?:[^"\\]|\\.)*'),
    ("", "'"): re.compile(r"(?s)(?:[^'\\]|\\.)*"),
    ("\\", '"'): re.compile(r'[^"\\]*(?:\\+[^"\\]+)*'),
    ("\\", "'"): re.compile(r"[^'\\]*(?:\\+[^'\\]+)*"),
    ("", ""): re.compile("[^&]*"),
}
"""By the quote's escape and the quote; an empty quote is an HTML entity."""
# A quote in the middle of a word, as in it's, does not end the value.
_WORD = re.compile(r"[^\s;,&\"'{}][^\s;,&\"'}]*(?:[\"'](?=\w)[^\s;,&\"'}]+)*")
_HIDDEN = re.compile(r"[^\s;,&\"'}\\]+")
_PIECES = re.compile(rf"{_WORD.pattern}(?:;+[^\s;,&\"'{{}}=]+(?=[\s;,&\"'}}]|\Z))*")
"""A word; text after a semicolon belongs to it, unless it is ``name=``."""
_UNQUOTED = re.compile(rf"(?x) (?! [\s;{{] | (?: {_CALL} [a-zA-Z]{{0,2}} )? {_QUOTE} )")
_PROPERTY = re.compile(
    r"""(?x) (?: (?! :// | ["'][\s,)\]}] | &(?:quot|apos|\#3[49]); ) [^\r\n] ){1,256}?
    (?= ; \s? [\w.-]{1,64} (?: [ ] [\w.-]{1,64} ){0,2} = )"""
)
"""A value in a connection string, which only the next property ends."""
_BRACED = re.compile(r"(?<==\{)(?:[^}\r\n]+|\}\}(?=[^}\r\n]*\}))+")
"""SQL Server's quotes for a value: ``{...}``, in which ``}}`` is a brace."""
_NOTHING = re.compile(r"(?:None|null)[)\]]{0,9}(?=[\s;,&}]|\Z)")
_ITEM = re.compile(r"(?:\[\w*\]|[^\s;,&\"'{}()\[\]])+")
_LIST = re.compile(r"[\w.]{0,40}[(\[](?:\[\w*\]|[^()\[\]])*")
"""The start of a list or of a call, up to the end of its first item."""
_COMMA = re.compile(
    rf"(?x) {_QUOTE}? \s{{0,3}} , {_SPACE}{{0,40}} (?! [\w.-]{{1,64}} \s{{0,3}} (?: [:=] | -> ) )"
)
"""The separator of two items, if the second has no name of its own."""

IsSecret = Callable[[str, bool], bool]
"""Whether the value of a name is secret; the flag is True for option notation."""


def hide_values(text: str, is_secret: IsSecret, hidden: str) -> str:
    """Replace the value of each secret name by ``hidden`` and keep its quotes."""
    kept: list[str] = []
    done = at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        counts = name.end(1) > done or _is_chained(name, done)
        if counts and is_secret(name.group(1), name.group(2) is not None):
            for begin, end in _values(name, hidden):
                if begin > name.end():
                    at = end
                if end > max(begin, done):
                    kept += [text[done:begin], hidden] if begin > done else []
                    done = end
    return "".join([*kept, text[done:]])


def _is_chained(name: re.Match[str], done: int) -> bool:
    """Whether a name in a hidden value has a value that ends later: ``auth: token="a b"``."""
    text = name.string
    at = name.end()
    is_quote = text[name.end(1)] in "\"'\\&"
    return not is_quote and (at >= done or _OPENING.match(text, at) is not None)


def _values(name: re.Match[str], hidden: str) -> Iterator[tuple[int, int]]:
    """The start and end of the value of ``name``, or of each item if it is a list."""
    text = name.string
    begin, end = _value(name, hidden)
    yield begin, end
    is_call = not {"(", "["}.isdisjoint(text[name.end() : begin])
    if is_call or _LIST.fullmatch(text, begin, end) is not None:
        while (comma := _COMMA.match(text, end)) is not None:
            item = _quoted(text, comma.end()) or _ITEM.match(text, comma.end())
            if item is None:
                break
            begin, end = item.span()
            yield begin, end


def _value(name: re.Match[str], hidden: str) -> tuple[int, int]:
    """The start and end of the value or of a list's first item; empty at ``name`` if none."""
    text = name.string
    at = name.end()
    if text.startswith(hidden, at):
        value = _HIDDEN.match(text, at)
    elif _NOTHING.match(text, at) is not None:
        value = None
    elif _is_property(name):
        value = _PROPERTY.match(text, at) or _PIECES.match(text, at)
    else:
        value = _BRACED.match(text, at + 1) or _quoted(text, at) or _PIECES.match(text, at)
    return value.span() if value is not None else (at, at)


def _quoted(text: str, at: int) -> re.Match[str] | None:
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    escape = opening.group(1) or ""
    quote = opening.group(2) or ""
    return _INSIDE[escape[:1], quote].match(text, opening.end())


def _is_property(name: re.Match[str]) -> bool:
    """Whether the notation is that of a connection string: ``;name=value``, without quotes."""
    text = name.string
    begin = name.start()
    at = name.end()
    follows = ";" in text[max(0, begin - 2) : begin] and text[at - 1] == "="
    return follows and _UNQUOTED.match(text, at) is not None


# -- redaction shapes -------------------------------------------------------------------------
# The shapes of secrets: data for ``redaction``.
#
# Every pattern takes linear time, even on hostile text: a part that can start anywhere is bounded
# or anchored to the start of its word, and no unbounded repetition that could restart in its middle
# is followed by a part that may fail. Prefixes are those that the issuers publish, as collected by
# gitleaks and detect-secrets.


_SEPARATOR = r"(?:\\{0,4}[\"'])?\s{0,3}[:=]\s{0,3}(?:\\{0,4}[\"'])?"
# After a host and a semicolon comes a property, not userinfo: ://host:1433;user=u@tenant
_USER = r"(://[^\s/?#@:;]*:)(?!\d{1,5}(?:[/?#]|;\s?[\w.-]{1,64}=|$))"
_NO_NAME = r"(?![?&;,]\s?[\w.-]{1,64}=)"
_TWICE = (
    # http://TOKEN@host; scott/tiger@host
    re.compile(rf"(https?://)(?:{_NO_NAME}[^\s/?#@:\[])+(?=@)"),
    re.compile(
        r"(?i)(jdbc:oracle:\w{1,8}:[\w.$\"-]{1,128}/)"
        r"(?:\"[^\"\r\n]{1,256}\"|[^\s@]{1,256}(?:@[^\s@]{1,256}){0,3})(?=@)"
    ),
    # curl -uuser:PASS
    re.compile(
        r"(\bcurl\b(?:\s{1,3}-[\w-]{1,20}){0,5}\s{1,3}-[sSkLfvi]{0,6}[uU])[^\s:\"'-][^\s:\"']{0,127}:[^\s\"']+"
    ),
    # curl -u user:PASS, --user 'user:PASS', ['-u', 'user:PASS'], -u TOKEN:
    re.compile(
        r"((?<![\w-])(?:-[sSkLfvi]{0,6}[uU]|--(?:proxy-)?user)"
        r"(?:=|\s{1,3}|\\{0,4}[\"']\s?,\s{0,3}(?=\\{0,4}[\"']))(?:\\{0,4}[\"'])?)"
        r"(?!jdbc:|[a-z][\w+.-]{0,20}://)"
        r"(?:(?<=')[^':\r\n]{0,128}:[^'\r\n]*|(?<=\")[^\":\r\n]{0,128}:(?:[^\"\\\r\n]|\\+[^\\\r\n])*"
        r"|(?<![\"'])[^\s\"':]{0,128}:(?:[^\s\"'\\]|\\\S)+|(?<![\"'])[\w.-]{16,128}:)"
    ),
    # urllib3 logs "POST /services/... HTTP/1.1"
    re.compile(r"(\"(?:GET|HEAD|POST|PUT) )[^\s\"]+(?= HTTP/)"),
)
"""Applied before the names and after them, because the value of one may contain the other."""
SHAPES = (
    re.compile(r"(?s)-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY.*?(?:-----END[^-]{0,100}-----|\Z)"),
    # AWS key ids; Google API keys, OAuth tokens and client secrets; Databricks
    re.compile(r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}"),
    re.compile(r"AIza[\w-]{35,}"),
    re.compile(r"ya29\.[\w-]{20,}"),
    re.compile(r"GOCSPX-[\w-]{20,}"),
    re.compile(r"d(?:api|ose|kea)[a-f0-9]{32,}(?:-\d)?"),
    # Azure: the client secret of an application; an account key, which is 64 bytes of base64
    re.compile(r"[\w~.]{3}\dQ~[\w~.-]{31,}"),
    re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}=="),
    # GitHub, GitLab, Slack, Grafana, Vault
    re.compile(r"gh[a-z]_[0-9A-Za-z]{36,}"),
    re.compile(r"github_pat_\w{20,}"),
    re.compile(r"glpat-[\w-]{16,}"),
    re.compile(r"xox[a-z]-[\w-]{8,}"),
    re.compile(r"xapp-[\w-]{8,}"),
    re.compile(r"gl(?:sa|c)_[\w=+/-]{8,}"),
    re.compile(r"hv[sb]\.[\w-]{20,}"),
    # OpenAI, Anthropic; Stripe; npm; SendGrid
    re.compile(r"(?<![A-Za-z0-9])sk-[\w-]{20,}"),
    re.compile(r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[0-9A-Za-z]{10,}"),
    re.compile(r"npm_[0-9A-Za-z]{36,}"),
    re.compile(r"(?<![A-Za-z0-9])SG\.[\w-]{16,}\.[\w-]{16,}"),
    # JWT, signed or encrypted
    re.compile(r"(?<![\w-])ey[\w-]{8,}\.ey[\w-]{8,}(?:\.[\w-]*){0,3}"),
    re.compile(
        r"(?i)(authorization" + _SEPARATOR + r")(?:[a-z-]{1,20}\s{1,3})?[^\s\"',;\\]+"
        r"(?:(?<==)\\{0,4}[\"'][^\"'\r\n]+)?"
    ),
    re.compile(r"(?i)(cookie:\s{0,3})[^\r\n]+"),
    re.compile(r"(?i)((?:bearer|basic)\s{1,3})(?!auth(?:entication|orization)?\b)[\w.~+/=-]{8,}"),
    *_TWICE,
    # ://user:PASS@host
    re.compile(
        rf"{_USER}(?:(?:{_NO_NAME}[^\s/:])*(?::(?!//)(?:{_NO_NAME}[^\s/:])*)*"
        rf"|(?:{_NO_NAME}[^\s:])*(?::(?!//)(?:{_NO_NAME}[^\s:])*)*)(?=@)"
    ),
    re.compile(r"(?i)(aws.{0,20}?secret.{0,20}?(?<![A-Za-z0-9/+]))[A-Za-z0-9/+]{40}"),
    # webhooks, whose path is the secret
    re.compile(r"(hooks\.slack\.com/)[\w/-]+"),
    re.compile(r"(discord(?:app)?\.com/api/webhooks/)[\w/-]+"),
    re.compile(r"(webhook\.office\.com/)[^\s\"'<>]+"),
    re.compile(r"(hc-ping\.com/)[^\s\"'<>]+"),
    # urllib3 and requests quote the path: "Max retries exceeded with url: /services/..."
    re.compile(r"((?:with|for) url: )\S+"),
    # a command line; SQL
    re.compile(
        r"(?i)((?<![\w-])--[a-z-]{0,40}(?:password|passwd|passphrase|(?<=-)pass|secret|token|key)"
        r"\s{1,3})(?!-)[^\s\"']+"
    ),
    re.compile(r"(?i)((?:password|passwd|pwd|identified by)\s{1,3}\\{0,16}['\"])[^'\"]+"),
)
"""Secret from the end of group 1 on; without a group, from the first character to the last."""

AFTER_NAMES = (
    *_TWICE,
    # A password may contain characters that a URL should not, even something like a name
    re.compile(_USER + r"(?:[^\s/:]*(?::(?!//)[^\s/:]*)*|[^\s:]*(?::(?!//)[^\s:]*)*)(?=@)"),
)
"""The same, once the values of names are hidden: a URL may cover a name and half of its value."""

SECRET_NAME = re.compile(
    r"(?i)password|passwd|passphrase|pwd|secret|token|credential|signature|cookie"
    r"|(?:api|access|account|private|encryption|routing|service)[_.-]?key"
    r"|shared[_.-]?access|user[_.-]?info|(?<![a-z])(?:sig|sas|auth)(?![a-z])"
    r"|(?:basic|digest|ntlm|proxy)auth(?![\w.-])"
    r"|(?:(?<![a-z])|db|key|store|user)pass(?![a-z]|[_.-]?(?:count|rate|through))"
)
"""A name that matches has a secret value: ``spark.hadoop.fs.s3a.secret.key=...``."""

PATH_NAME = re.compile(r"(?i)[._-](?:file|path|dir)$")
"""The name of a secret's location, which is not secret itself: ``webhook_secret_file``."""


# -- own secrets ------------------------------------------------------------------------------
# The forms in which our own secrets may appear in a text, for exact matches.


MIN_CHARACTERS = 3
"""Anything shorter would be found as a word of ordinary text."""
_MIN_INSIDE = 8
"""The shortest base64 that is searched for within longer text."""
_BASE64_URL = str.maketrans("+/", "-_")
_OWN_NAME = re.compile(r"(?i)(?<![a-z])(?:key|code|sign|authorization)(?![a-z])")
"""Names in our own URLs and headers whose values are secret, besides ``SECRET_NAME``."""
_PLAIN_NUMBERS = re.compile(
    r"(?x) (?<!\d) (?: 20\d\d (?:[-_.]?[01]\d (?:[-_.]?[0-3]\d (?:T\d{4,6}Z?)? )? )?"
    r" | \d{1,3} (?:[-.]\d{1,3}){3} | \d{1,4} (?:\.\d{1,4})+ ) (?!\d)"
)
"""Dates, addresses and versions, which are no part of a key."""
_NAME_AND_NUMBER = re.compile(r"[A-Za-z]+\d{0,4}|\d+")
_LONG = 16
"""Characters of a key."""
_MANY = 5
"""A key has so many digits and letters, and one of each in so many characters."""
_LONG_ALTERNATING = 10
_TURNS = 1 / 3
_LONG_LETTERS = 16
_TURNS_OF_LETTERS = 0.5
"""A name in camel case turns between upper and lower case twice for each word."""


def own_matches(secrets: Iterable[str]) -> list[tuple[str, re.Pattern[str] | None]]:
    """Every form of every secret, the longest first: plain, escaped, URL-encoded, base64.

    With its pattern if the form counts only as a whole word: a password may be a word, such as
    ``prod``, that is part of the names of tables and queries.
    """
    matches: dict[str, re.Pattern[str] | None] = {}
    for secret in secrets:
        plain = secret.strip()
        if len(plain) >= MIN_CHARACTERS:
            inside = _base64_forms(plain)
            words = _forms(plain) - inside
            matches |= {form: None if is_random(plain) else _as_word(form) for form in words}
            matches |= dict.fromkeys(inside)
    return sorted(matches.items(), key=lambda match: (-len(match[0]), match[0]))


_ESCAPES = (
    r"(?<=%[0-9A-Fa-f]{2})",  # %3Dprod
    r"(?<=%25[0-9A-Fa-f]{2})",  # the same, encoded twice
    r"(?<==[0-9A-F]{2})",  # =3Dprod, quoted-printable
    r"(?<=\\[bfnrt])",  # the text \nprod
    r"(?<=\\u[0-9A-Fa-f]{4})",  # the text \u003dprod
    r"(?<=\x1b\[\dm)",  # colours of a terminal
    r"(?<=\x1b\[\d\dm)",
)
"""What may come before a word although it ends with a letter or digit."""


def _as_word(form: str) -> re.Pattern[str]:
    """The form where it is no part of a longer name; a dot at the end of a sentence is no part."""
    begin = rf"(?:(?<![\w-])(?<!\w\.)|{'|'.join(_ESCAPES)})"
    end = r"(?![\w-]|\.\w)"
    left = begin if form[0].isalnum() else ""
    right = end if form[-1].isalnum() else ""
    return re.compile(left + re.escape(form) + right)


def is_random(text: str) -> bool:
    """Whether a text looks like a key, and not like a name, a date, a version or an address.

    A key is long, and its letters and digits alternate, or it has many of both: UUIDs, hex, base64.
    """
    plain = "".join(filter(str.isalnum, _PLAIN_NUMBERS.sub("", text)))
    digits = sum(map(str.isdigit, plain))
    letters = len(plain) - digits
    kinds = ["0" if one.isdigit() else "A" if one.isupper() else "a" for one in plain]
    turns = sum(kind != following for kind, following in pairwise(kinds))
    if not digits or not letters:
        return len(plain) >= _LONG_LETTERS and turns >= _TURNS_OF_LETTERS * len(plain)
    alternates = len(plain) >= _LONG_ALTERNATING and turns >= _TURNS * len(plain)
    has_many = len(plain) >= _LONG and min(digits, letters) >= max(_MANY, len(plain) / _MANY)
    return alternates or has_many or any(map(_is_long_run, re.findall("[A-Za-z0-9]+", text)))


def _is_long_run(run: str) -> bool:
    is_plain = _NAME_AND_NUMBER.fullmatch(run) or _PLAIN_NUMBERS.fullmatch(run)
    return len(run) >= _LONG and is_plain is None


def names_secret(name: str) -> bool:
    """Whether the value of a parameter of a URL, or of a header, is secret by its name."""
    is_named = SECRET_NAME.search(name) or _OWN_NAME.search(name)
    return is_named is not None and PATH_NAME.search(name) is None


def secrets_of_url(url: str) -> tuple[str, ...]:
    """The secret parts of a receiver's URL: passwords, and what is random or named as a secret.

    A user name beside a password, and the words of a path or a query, are names that people need.
    A path of several words may be a password: it is hidden where it follows its host.

    Raises:
        ValueError: the text is not a URL.

    """
    parts = urlsplit(url)
    user = parts.username or ""
    password = parts.password or ""
    steps = [step for step in parts.path.split("/") if step]
    random = [step for step in steps if is_random(step)]
    texts = [password, *random]
    if not password or is_random(user):
        texts.append(user)
    texts += [
        value for name, value in parse_qsl(parts.query) if names_secret(name) or is_random(value)
    ]
    if random:
        texts.append(parts.path)
    elif len(steps) > 1:
        host = parts.netloc.rpartition("@")[2]
        ports = ["", ":443", ":80"] if parts.port is None else [""]
        texts += [host + port + parts.path for port in ports]
    return tuple(secret for secret in texts if len(secret) >= MIN_CHARACTERS)


def _forms(plain: str) -> set[str]:
    encoded = {quote(plain), quote(plain, safe=""), quote_plus(plain)}
    encoded |= {_lower_escapes(form) for form in encoded}
    escaped = {json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    base64 = b64encode(plain.encode("utf-8", "replace")).decode().rstrip("=")
    return {plain, base64, base64.translate(_BASE64_URL)} | encoded | escaped


def _base64_forms(plain: str) -> set[str]:
    """What base64 shows of a secret within a longer text, for each place where it may begin."""
    base64 = {_base64(plain.encode("utf-8", "replace"), shift) for shift in range(3)}
    base64 |= {form.translate(_BASE64_URL) for form in base64}
    return {form for form in base64 if len(form) >= _MIN_INSIDE}


def _lower_escapes(encoded: str) -> str:
    """Lower-case the percent escapes, which may be written as %2F or %2f."""
    first, *others = encoded.split("%")
    return "%".join([first, *(other[:2].lower() + other[2:] for other in others)])


def _base64(plain: bytes, shift: int) -> str:
    """The base64 characters that encode only ``plain``, which starts at byte ``shift``."""
    encoded = b64encode(bytes(shift) + plain).decode()
    begin = -(-shift * 8 // 6)
    return encoded[begin : (shift + len(plain)) * 8 // 6]


# -- redaction --------------------------------------------------------------------------------
# Removes secrets from text before it is stored or sent.
#
# Exceptions of streaming queries contain connection strings, options and whole Python tracebacks.
# Text is redacted by the shapes of secrets when it enters, and again when it leaves, by what the
# session and our own settings declare as secret.


REDACTED = "[redacted]"
WITHHELD = "[withheld]"
"""Replaces a text that could not be redacted."""
MAX_CHARACTERS = 64 * 1024
"""Longer text is cut before redaction."""
MAX_WITH_PATTERNS = 8 * 1024
"""The limit when foreign patterns apply, which may take quadratic time."""
CUT_CHARACTERS = 4096
"""A cut may leave part of a secret, too short to recognise, so this much more is removed."""
_REMEMBERED = 1024
_REMEMBERED_CHARACTERS = 1024
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_EVERY_NAME = re.compile("")


class Redactor:
    """Finds secrets by shape, by name, by our own values and by foreign patterns.

    ``secrets`` are matched exactly, in every encoding, and as whole words unless they are random.
    ``patterns`` are regular expressions for text to hide. A name that matches one of
    ``key_patterns`` has its value hidden; so does a name that matches one of ``option_patterns``
    and is written as an option (``url=...``, ``url -> ...``).

    An ``unusable`` pattern hides everything that it could match: a name pattern every value, a
    text pattern the whole text.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        key_patterns: Iterable[str] = (),
        option_patterns: Iterable[str] = (),
    ) -> None:
        self._own = [match for match in own_matches(secrets) if match[0] not in REDACTED]
        texts = [_usable(pattern) for pattern in patterns]
        self._patterns = [pattern for pattern in texts if pattern is not None]
        self._blind = None in texts
        self._names = [_usable(pattern) or _EVERY_NAME for pattern in key_patterns]
        self._options = [_usable(pattern) or _EVERY_NAME for pattern in option_patterns]
        foreign = self._patterns or self._names or self._options
        self._max = MAX_WITH_PATTERNS if foreign else MAX_CHARACTERS
        self._remembered = lru_cache(_REMEMBERED)(self._redact)

    def text(self, text: str) -> str:
        """Replace every secret; ``WITHHELD`` when that fails. A second call changes nothing."""
        try:
            short = len(text) <= _REMEMBERED_CHARACTERS
            return self._remembered(text) if short else self._redact(text)
        except Exception:  # noqa: BLE001 - unredacted text must not leave after any error
            return WITHHELD

    def _redact(self, text: str) -> str:
        if self._blind:
            return WITHHELD if text else ""
        clean = self._replace(text[: self._max])
        if max(len(text), len(clean)) > self._max:
            clean = self._replace(self._before_cut(clean)) or WITHHELD
        return clean

    def _before_cut(self, clean: str) -> str:
        """The part of a redacted text that a secret at the cut cannot reach.

        Up to the first replacement, characters stand where they stood in the original text.
        """
        unchanged = clean.partition(REDACTED)[0][: self._max - CUT_CHARACTERS]
        return max(clean[: self._max][:-CUT_CHARACTERS], unchanged, key=len)

    def _replace(self, text: str) -> str:
        for secret, word in self._own:
            if secret in text:
                text = word.sub(REDACTED, text) if word else text.replace(secret, REDACTED)
        for pattern in SHAPES:
            text = pattern.sub(rf"\g<1>{REDACTED}" if pattern.groups else REDACTED, text)
        if self._names or self._options or SECRET_NAME.search(text):
            text = hide_values(text, self._is_secret, REDACTED)
        for pattern in AFTER_NAMES:
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
        for pattern in self._patterns:
            # Keep what is already hidden, even if a pattern such as \w+ matches it.
            text = REDACTED.join(pattern.sub(_hide, part) for part in text.split(REDACTED))
        return text

    def _is_secret(self, name: str, is_option: bool) -> bool:
        if SECRET_NAME.search(name) and not PATH_NAME.search(name):
            return True
        if any(pattern.search(name) for pattern in self._names):
            return True
        return is_option and any(pattern.search(name) for pattern in self._options)


def unusable(pattern: str) -> str:
    """Why a regular expression cannot be used; empty if it can.

    Python cannot compile it, or reads it differently from Java. The answer does not contain the
    pattern, which may itself contain the secret.
    """
    try:
        _compiled(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"not a regular expression Python can use: {error}"
    return ""


def _usable(pattern: str) -> re.Pattern[str] | None:
    return None if unusable(pattern) else _compiled(pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    # Java allows flags in the middle; applied to the whole pattern they hide more, never less.
    flags = "".join(sorted(set("".join(_FLAGS.findall(pattern))) & set("ims")))
    plain = _FLAGS.sub("", pattern)
    with warnings.catch_warnings():
        # Java's [a-z&&[^x]] means another set in Python, which only warns.
        warnings.simplefilter("error")
        return re.compile(f"(?{flags}:{plain})" if flags else plain)


def _hide(match: re.Match[str]) -> str:
    return REDACTED if match.group() else ""


redact = Redactor().text
"""Replaces every secret of a known shape or name; a second call changes nothing."""


class RedactedLog(logging.Filter):
    """A filter for the logger ``querypulse``: messages and tracebacks pass through ``redact``."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place, fully formatted, so that handlers have nothing to add."""
        try:
            record.msg = self._redact(logging.Formatter("%(message)s").format(record))
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not pass
            record.msg = WITHHELD
        record.args = ()
        record.exc_info = None
        record.exc_text = None
        record.stack_info = None
        return True
