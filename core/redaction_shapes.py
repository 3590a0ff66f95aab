"""The shapes of secrets: data for ``redaction``.

Every pattern takes linear time, even on hostile text: a part that can start anywhere is bounded
or anchored to the start of its word, and no unbounded repetition that could restart in its middle
is followed by a part that may fail. Prefixes are those that the issuers publish, as collected by
gitleaks and detect-secrets.
"""

from __future__ import annotations

import re

WHOLE = (
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
)
"""Secret from the first character to the last."""

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
PREFIXED = (
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
"""Secret from the end of group 1 on."""

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
