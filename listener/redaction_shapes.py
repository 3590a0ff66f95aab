"""What secrets look like. Data for ``redaction``, and nothing else.

Every pattern takes time proportional to the text, however hostile: what can begin anywhere
is bounded or tied to the start of its word, and nothing that may fail follows an unbounded
repetition that could begin again in its middle. Prefixes are those that the issuers publish,
as gitleaks and detect-secrets collect them.
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
    # JWT, signed or encrypted
    re.compile(r"(?<![\w-])ey[\w-]{8,}\.ey[\w-]{8,}(?:\.[\w-]*){0,3}"),
)
"""Secret from the first character to the last."""

_SEPARATOR = r"(?:\\{0,4}[\"'])?\s{0,3}[:=]\s{0,3}(?:\\{0,4}[\"'])?"
PREFIXED = (
    re.compile(r"(?i)(authorization" + _SEPARATOR + r")(?:[a-z-]{1,20}\s{1,3})?[^\s\"',;\\]+"),
    re.compile(r"(?i)(cookie:\s{0,3})[^\r\n]+"),
    re.compile(r"(?i)((?:bearer|basic)\s{1,3})(?!auth(?:entication|orization)?\b)[\w.~+/=-]{8,}"),
    # http://TOKEN@host, ://user:PASS@host; a password may hold what a URL's should not
    re.compile(r"(https?://)[^\s/?#@:\[]+(?=@)"),
    re.compile(
        r"(://[^\s/?#@:]*:)(?!\d{1,5}(?:[/?#]|$))"
        r"(?:[^\s/:]*(?::(?!//)[^\s/:]*)*|[^\s:]*(?::(?!//)[^\s:]*)*)(?=@)"
    ),
    re.compile(r"(?i)(jdbc:oracle:\w{1,8}:[\w.$\"-]{1,128}/)[^\s@]{1,256}(?=@)"),
    re.compile(r"(?i)(aws.{0,20}?secret.{0,20}?(?<![A-Za-z0-9/+]))[A-Za-z0-9/+]{40}"),
    # webhooks, whose path is the secret
    re.compile(r"(hooks\.slack\.com/)[\w/-]+"),
    re.compile(r"(discord(?:app)?\.com/api/webhooks/)[\w/-]+"),
    re.compile(r"(webhook\.office\.com/)[^\s\"'<>]+"),
    re.compile(r"(hc-ping\.com/)[^\s\"'<>]+"),
    # urllib3 and requests quote the path: "Max retries exceeded with url: /services/..."
    re.compile(r"((?:with|for) url: )\S+"),
    re.compile(r"(\"(?:GET|HEAD|POST|PUT) )[^\s\"]+(?= HTTP/)"),
    # a command line; SQL
    re.compile(r"(?i)((?<![\w-])--[a-z-]{0,40}(?:password|secret|token|key)\s{1,3})(?!-)[^\s\"']+"),
    re.compile(r"(?i)((?:password|passwd|pwd|identified by)\s{1,3}['\"])[^'\"]+"),
)
"""Secret from the end of group 1 on."""

SECRET_NAME = re.compile(
    r"(?i)password|passwd|passphrase|pwd|secret|token|credential|signature|cookie"
    r"|(?:api|access|account|private|encryption|routing|service)[_.-]?key"
    r"|shared[_.-]?access|user[_.-]?info|(?<![a-z])(?:sig|sas|auth)(?![a-z])"
)
"""Found in a name, makes its value a secret: ``spark.hadoop.fs.s3a.secret.key=...``."""

PATH_NAME = re.compile(r"(?i)[._-](?:file|path|dir)$")
"""Tells where a secret lies, which is no secret: ``webhook_secret_file``."""
