"""Secrets of every kind, in texts in which they occur. None of them is real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Planted(NamedTuple):
    """``secret`` is the part of ``text`` that must not remain."""

    kind: str
    text: str
    secret: str


HUNTER = "hunter2hunter2"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfi" + "CYEXAMPLEKEY"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
AZURE_APP = "abc8Q~" + "0123456789abcdefghijklmnopqrstuv-Z"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"
GITHUB = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
OPENAI = "sk-" + "proj-0123456789_abcdefghij-ABCDEFGHIJ"
OPENAI_OLD = "sk-" + "0123456789abcdefghijABCDEFGHIJ0123456789abcdefgh"
ANTHROPIC = "sk-" + "ant-api03-0123456789_abcdefghij-ABCDEFGHIJ-AA"
STRIPE = "sk_" + "live_0123456789abcdefghijABCD"
STRIPE_RESTRICTED = "rk_" + "test_0123456789abcdefghijABCD"
NPM = "npm_" + "0123456789abcdefghijABCDEFGHIJ012345"
SENDGRID = "SG." + "0123456789_abcdefghi-A.0123456789_abcdefghij-ABCDEFGHIJ0123456789ab"
DATABRICKS = "dapi" + "0123456789abcdef" * 2

_PLANTED = (
    Planted("password", f"could not connect: password={HUNTER}", HUNTER),
    Planted("json", f'{{"user": "u", "api_key": "{HUNTER} and more"}}', HUNTER),
    Planted("escaped json", f'{{\\"password\\": \\"{HUNTER}\\"}}', HUNTER),
    Planted("twice escaped json", f'\\\\\\"client_secret\\\\\\":\\\\\\"{HUNTER}\\\\\\"', HUNTER),
    Planted("python dict", f"{{'user': 'u', 'password': '{HUNTER}'}}", HUNTER),
    Planted("python pairs", f"[('user', 'u'), ('password', '{HUNTER}')]", HUNTER),
    Planted("python bytes", f"connect(password=b'{HUNTER}')", HUNTER),
    Planted("scala map", f"Map(user -> u, password -> {HUNTER})", HUNTER),
    Planted("scala option", f'Conf(token=Some("{HUNTER}"))', HUNTER),
    Planted("ruby", f":password=>'{HUNTER}'", HUNTER),
    Planted("xml", f"<sas-token>{HUNTER}</sas-token>", HUNTER),
    Planted("hadoop xml", f"<name>fs.s3a.secret.key</name>\n <value>{HUNTER}</value>", HUNTER),
    Planted("kubernetes json", f'{{"name": "DB_PASSWORD", "value": "{HUNTER}"}}', HUNTER),
    Planted("kubernetes yaml", f"- name: DB_PASSWORD\n      value: {HUNTER}", HUNTER),
    Planted("html", f"{{&quot;password&quot;: &quot;{HUNTER}&quot;}}", HUNTER),
    Planted("yaml", f"passphrase: {HUNTER}", HUNTER),
    Planted("url encoded", f"?next=%2Fx%3Fpassword%3D{HUNTER}", HUNTER),
    Planted("command line", f"run --db-password {HUNTER} --verbose", HUNTER),
    Planted("sql", f"CREATE USER u IDENTIFIED BY '{HUNTER}'", HUNTER),
    Planted("sql, escaped", f"'CREATE USER u IDENTIFIED BY \\'{HUNTER}\\''", HUNTER),
    Planted("url", f"https://user:{HUNTER}@host/path", HUNTER),
    Planted("url, at", f"https://user:p@{HUNTER}@host/path", HUNTER),
    Planted("url, slash", f"s3a://user:p/{HUNTER}@bucket/path", HUNTER),
    Planted("url, semicolon", f"https://user:p;{HUNTER}@host/path", HUNTER),
    Planted("url, property", f"https://user:p;x={HUNTER}@host/path", HUNTER),
    Planted("url, token only", f"https://{HUNTER}@sentry.example/4", HUNTER),
    Planted("jdbc", f"jdbc:postgresql://h/db?user=u&password={HUNTER}&ssl=true", HUNTER),
    Planted("jdbc, semicolons", f"jdbc:sqlserver://h:1433;user=u;password={HUNTER};", HUNTER),
    Planted("jdbc, at", f"jdbc:sqlserver://h:1433;database=x;user=sa;password=p@{HUNTER};encrypt=true", HUNTER),
    Planted("jdbc, at, last", f"jdbc:sqlserver://h;user=sa;password=a@b@{HUNTER}", HUNTER),
    Planted("jdbc, at and semicolon", f"jdbc:sqlserver://h:1433;user=sa;password=p@ss;{HUNTER}@more;encrypt=true", f"{HUNTER}@more"),
    Planted("jdbc, at and semicolon, last", f"jdbc:sqlserver://h:1433;user=sa;password=p@ss;{HUNTER}@more", f"{HUNTER}@more"),
    Planted("jdbc, semicolon, in json", f'{{"url": "jdbc:sqlserver://h:1;user=sa;password=p@s;{HUNTER}@x", "k": "v"}}', f"{HUNTER}@x"),
    Planted("jdbc, comma and space", f"jdbc:sqlserver://h:1433;user=sa;Password=p,w& {HUNTER};encrypt=true", HUNTER),
    Planted("jdbc, quote", f"jdbc:sqlserver://h:1433;user=sa;password=it's{HUNTER};encrypt=true", HUNTER),
    Planted("jdbc, braces", f"jdbc:sqlserver://h:1433;user=sa;password={{p@ss;{HUNTER}}};encrypt=true", HUNTER),
    Planted("jdbc, brace in braces", f"jdbc:sqlserver://h;password={{p@}}}};{HUNTER}}};encrypt=true", HUNTER),
    Planted("jdbc, two in a line", f"jdbc:sqlserver://a:1;password=p@1;x@2 to jdbc:sqlserver://b:1;password=q@3;{HUNTER}@4", f"{HUNTER}@4"),
    Planted("jdbc, a line follows", f"jdbc:sqlserver://h:1;user=sa;password=p@ss;{HUNTER}@more\nCaused by: a.b: c@d", f"{HUNTER}@more"),
    Planted("jdbc, many hosts", f"jdbc:mysql://a:3306,b:3306/db?user=u&password=p@{HUNTER}", HUNTER),
    Planted("jdbc, oracle", f"jdbc:oracle:thin:scott/{HUNTER}@host:1521:orcl", HUNTER),
    Planted("jdbc, oracle, at", f"jdbc:oracle:thin:scott/p@{HUNTER}@host:1521:orcl", HUNTER),
    Planted("jdbc, oracle, quoted", f'jdbc:oracle:thin:scott/"p@ {HUNTER}"@//host:1521/orcl', HUNTER),
    Planted("ado", f"Password=p@ss;{HUNTER}@x;Server=h", f"{HUNTER}@x"),
    Planted("pass", f"user=bob;pass={HUNTER}", HUNTER),
    Planted("pass, prose", f"pass: {HUNTER}", HUNTER),
    Planted("pass, longer name", f"export DB_PASS={HUNTER}", HUNTER),
    Planted("pass, keytool", f"-Dstorepass={HUNTER}", HUNTER),
    Planted("pass, openssl", f"openssl pkcs12 -passin pass:{HUNTER} -in x", HUNTER),
    Planted("pass, command line", f"mvn --pass {HUNTER} x", HUNTER),
    Planted("python auth, no user", f"auth=('', '{HUNTER}')", HUNTER),
    Planted("python auth, many lines", f"auth=(\n    'bob',\n    '{HUNTER}',\n)", HUNTER),
    Planted("python auth", f"auth=('bob','{HUNTER}')", HUNTER),
    Planted("python auth, double quotes", f'get(url, auth = ( "bob", "{HUNTER}" ), timeout=3)', HUNTER),
    Planted("python auth, bracket", f"auth=(\"bob\", 'sec){HUNTER}')", HUNTER),
    Planted("python auth, escaped", f'{{"m": "auth=(\\"bob\\", \\"{HUNTER}\\")"}}', HUNTER),
    Planted("python auth, dict", f"{{'auth': (b'bob', b'{HUNTER}')}}", HUNTER),
    Planted("python auth, names", f"auth=(user, '{HUNTER}')", HUNTER),
    Planted("python auth, class", f"requests.get(u, auth=HTTPBasicAuth('bob', '{HUNTER}'))", HUNTER),
    Planted("python auth, class alone", f"HTTPBasicAuth('bob','{HUNTER}')", HUNTER),
    Planted("java auth", f'builder.withBasicAuth("bob", "{HUNTER}")', HUNTER),
    Planted("list of tokens", f'"tokens": ["one", "{HUNTER}"]', HUNTER),
    Planted("curl", f"curl -u user:{HUNTER} https://h/p", HUNTER),
    Planted("curl, many options", f"curl -sSLu bob:p:{HUNTER} -X POST https://h", HUNTER),
    Planted("curl, no space", f"curl -uuser:{HUNTER} https://h/p", HUNTER),
    Planted("curl, no space, options", f"curl -s --fail -kubob:p:{HUNTER} https://h", HUNTER),
    Planted("curl, long", f"curl --user user:{HUNTER}", HUNTER),
    Planted("curl, long, equals", f"curl --proxy-user=user:{HUNTER} https://h", HUNTER),
    Planted("curl, quoted", f"curl -u 'user:p {HUNTER}' https://h", HUNTER),
    Planted("curl, double quotes", f'curl -u "user:p\\"w {HUNTER}" https://h', HUNTER),
    Planted("curl, token as user", f"curl https://h -u {HUNTER}:", HUNTER),
    Planted("curl, list", f"Command '['curl', '-u', 'bob:p {HUNTER}', 'https://h']' failed", HUNTER),
    Planted("name after name", f"invalid credentials: password='{HUNTER} x'", HUNTER),
    Planted("header with a name", f'Authorization: Token token="{HUNTER}"', HUNTER),
    Planted("header under a name", f"x-token: Bearer {HUNTER}", HUNTER),
    Planted("mongodb", f"mongodb+srv://app:{HUNTER}@cluster0.example.net/db", HUNTER),
    Planted("aws id", f"InvalidAccessKeyId {AWS_ID} does not exist", AWS_ID),
    Planted("aws secret, named", f"fs.s3a.secret.key={AWS_SECRET}", AWS_SECRET),
    Planted("aws secret, in prose", f"the AWS secret key is {AWS_SECRET}", AWS_SECRET),
    Planted("aws url", f"https://b.s3.amazonaws.com/k?X-Amz-Signature={HUNTER}&X-Amz-Expires=3", HUNTER),
    Planted("aws session", f"x-amz-security-token: {HUNTER}", HUNTER),
    Planted("azure account key", f"AccountName=a;AccountKey={AZURE_KEY};EndpointSuffix=x", AZURE_KEY),
    Planted("azure account key, bare", f"key {AZURE_KEY} is wrong", AZURE_KEY),
    Planted("azure conf", f"fs.azure.account.key.acc.dfs.core.windows.net={HUNTER}", HUNTER),
    Planted("azure oauth", f"fs.azure.account.oauth2.client.secret.acc: {HUNTER}", HUNTER),
    Planted("azure sas", f"https://acc.blob.core.windows.net/c?sv=1&sig={HUNTER}%3D&se=2", HUNTER),
    Planted("azure sas conf", f"fs.azure.sas.container.acc={HUNTER}", HUNTER),
    Planted("azure event hubs", f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={HUNTER}=", HUNTER),
    Planted("azure application", f"client {AZURE_APP} expired", AZURE_APP),
    Planted("gcp api key", "key AIza" + "SyD-0123456789abcdefghijklmnopqrstu is bad", "SyD-0123456789"),
    Planted("gcp oauth", "ya29." + "a0AfH6SMBx-0123456789abcdef", "a0AfH6SMBx"),
    Planted("gcp service account", f'"private_key": "{PEM.replace(chr(10), chr(92) + "n")}"', "MIIEowIBAAKCAQEA7"),
    Planted("databricks", f"token {DATABRICKS}-3 was revoked", DATABRICKS),
    Planted("jwt", f"id_token is {JWT}", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0"),
    Planted("jwt, cut short", f"id {JWT[:60]}", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0"),
    Planted("bearer", f"Authorization: Bearer {HUNTER}", HUNTER),
    Planted("basic", "Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    Planted("header of its own kind", f"'Authorization': 'GenieKey {HUNTER}'", HUNTER),
    Planted("cookie", f"Set-Cookie: id=a; session={HUNTER}; HttpOnly", HUNTER),
    Planted("pem", f"bad key {PEM} in file", "MIIEowIBAAKCAQEA7"),
    Planted("pem, cut short", PEM[:50], "MIIEowIBAAKC"),
    Planted("slack webhook", f"https://hooks.slack.com/services/T0/B0/{HUNTER}", HUNTER),
    Planted("slack workflow", f"https://hooks.slack.com/workflows/T0/A0/{HUNTER}", HUNTER),
    Planted("slack token", f"xoxb-123456789012-{HUNTER}", HUNTER),
    Planted("slack app token", f"xapp-1-A0-{HUNTER}", HUNTER),
    Planted("github", f"clone with {GITHUB}", GITHUB),
    Planted("github, fine", "github_" + f"pat_11ABCDEFG0123456789_{HUNTER}", HUNTER),
    Planted("gitlab", f"glpat-{HUNTER}-01", HUNTER),
    Planted("grafana", f"glsa_{HUNTER}_6d0b1c2e", HUNTER),
    Planted("grafana cloud", f"glc_{HUNTER}==", HUNTER),
    Planted("vault", f"hvs.CAESI{HUNTER}0123456789", HUNTER),
    Planted("openai", f"Incorrect API key provided: {OPENAI}.", OPENAI),
    Planted("openai, old", f"key={OPENAI_OLD}", OPENAI_OLD),
    Planted("anthropic", f"x-api: {ANTHROPIC}\n", ANTHROPIC),
    Planted("stripe", f"Invalid API Key provided: {STRIPE}", STRIPE),
    Planted("stripe, restricted", f"('{STRIPE_RESTRICTED}', 1)", STRIPE_RESTRICTED),
    Planted("npm", f"//registry.example/:_auth {NPM}", NPM),
    Planted("sendgrid", f"mail refused: {SENDGRID}", SENDGRID),
    Planted("kafka jaas", f'sasl.jaas.config=org.apache.kafka.PlainLoginModule required username="u" password="{HUNTER}";', HUNTER),
    Planted("kafka registry", f"basic.auth.user.info=user:{HUNTER}", HUNTER),
    Planted("kafka ssl", f"ssl.keystore.password -> {HUNTER}", HUNTER),
    Planted("pagerduty", f'"routing_key":"{HUNTER}"', HUNTER),
    Planted("discord", f"https://discord.com/api/webhooks/1/{HUNTER}", HUNTER),
    Planted("healthchecks", f"https://hc-ping.com/{HUNTER}/fail", HUNTER),
    Planted("urllib3", f"Max retries exceeded with url: /hook/{HUNTER} (Caused by X)", HUNTER),
    Planted("requests", f"404 Client Error: Not Found for url: https://x.example/{HUNTER}", HUNTER),
    Planted("urllib3 debug", f'https://x.example:443 "POST /hook/{HUNTER} HTTP/1.1" 200 2', HUNTER),
)  # fmt: skip


def _with_its_own(index: int, planted: Planted) -> Planted:
    """Number the secret, so that each leak is distinguishable."""
    own = f"hunter2hunter{index:03}"
    return planted._replace(
        text=planted.text.replace(HUNTER, own), secret=planted.secret.replace(HUNTER, own)
    )


PLANTED = tuple(_with_its_own(index, planted) for index, planted in enumerate(_PLANTED))
SECRETS_IN_A_LINE = 11
"""At most. A line must be short enough for a message."""
REDACTS_THE_REST = ("cookie", "pem, cut short")
"""Kinds after which the rest of the line is redacted."""


def in_lines() -> list[list[Planted]]:
    """All secrets, several in a line, where none is redacted because of another."""
    most = SECRETS_IN_A_LINE - 1
    last = [secret for secret in PLANTED if secret.kind in REDACTS_THE_REST]
    others = [secret for secret in PLANTED if secret not in last]
    lines = [others[at : at + most] for at in range(0, len(others), most)]
    return [line + last[index : index + 1] for index, line in enumerate(lines)]


def joined(texts: Iterable[str]) -> str:
    """Texts as one line."""
    return " | ".join(texts).replace("\n", "\\n")
