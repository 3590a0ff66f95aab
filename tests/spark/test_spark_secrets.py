"""A driver full of secrets fails and publishes none of them: in no message, page or log."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from urllib.parse import quote

import pytest
from support.driver import Driver
from support.pages import PageRecorder
from support.planted import HUNTER, PLANTED, in_lines, joined

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.timeout(600)]

OWN_PATH = "hook-4c1d9a7e2b"
OWN_KEY = "R0UT1NGK3Y/with+signs=0123456789"
ENCODED_KEYS = [OWN_KEY, quote(OWN_KEY, safe=""), b64encode(OWN_KEY.encode()).decode()]
OF_THE_SESSION = ["ACME-7731-XYZ", "eu-nowhere-7"]
"""They have no known shape: only the session's own patterns match them, or their name."""
OWN_LINES = [
    f"cannot post to {OWN_PATH} as {', '.join(ENCODED_KEYS)}",
    "see ACME-7731-XYZ",
    "spark.acme.region=eu-nowhere-7",
]

# Python quotes lines of the script in tracebacks, so the secrets come from a file.
SCRIPT = """
import json, logging, urllib.error, urllib.request
handler = logging.FileHandler(os.environ["LOG"])
for name in ("querypulse", "urllib3"):
    logging.getLogger(name).addHandler(handler)
    logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger(name).propagate = False
texts = json.load(open(os.environ["TEXTS"]))
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], http_token_file=os.environ["KEY"])
die = threading.Event()
def dying_of(text):
    def work(batch, batch_id):
        if die.is_set():
            raise ValueError(text)
    return work
def dying_of_conf(batch, batch_id):
    if die.is_set():
        raise ValueError(str({name: spark.conf.get(name) for name in texts["conf"]}))
def dying_of_options(batch, batch_id):
    if die.is_set():
        batch.sparkSession.read.format("jdbc").options(**texts["options"]).load()
queries = [start(f"line-{index}", dying_of(text)) for index, text in enumerate(texts["lines"])]
queries.append(start("conf", dying_of_conf))
stream = spark.readStream.format("rate").options(**texts["options"]).load().writeStream
queries.append(stream.queryName("options").foreachBatch(dying_of_options).start())
queries.append(stream.queryName("options-printed").foreachBatch(dying_of(str(texts["options"]))).start())
until_commits(sidecar, *(query.name for query in queries))
die.set()
until(lambda: not any(query.isActive for query in queries))
until(lambda: sidecar.flush(60))
for text in texts["lines"]:
    sidecar._guard.report(f"test {len(text)}", ValueError(text))
for path in ("status", "metrics", "readyz"):
    try:
        request = urllib.request.Request(f"{sidecar.url}/{path}", headers={"Authorization": f"Bearer {open(os.environ['KEY']).read()}"})
        answer = urllib.request.urlopen(request).read()
    except urllib.error.HTTPError as error:
        answer = error.read()
    with open(os.environ["SHOWN"] + path, "wb") as file:
        file.write(answer)
say("done")
sidecar.close()
"""

OPTIONS = {
    "url": f"jdbc:postgresql://db.example/x?user=u&password={HUNTER}",
    "password": HUNTER,
    "dbtable": "t",
    "driver": "no.such.Driver",
    "kafka.sasl.jaas.config": f'x.PlainLoginModule required username="u" password="{HUNTER}";',
}
CONF = {
    "spark.hadoop.fs.s3a.secret.key": HUNTER,
    "spark.acme.db.password": HUNTER,
    "spark.acme.jdbc": f"jdbc:postgresql://db.example/x?user=u&password={HUNTER}",
}


SESSION = {
    **CONF,
    "spark.redaction.string.regex": r"ACME-\d+-[A-Z]+",
    "spark.redaction.regex": "(?i)secret|password|token|region",
}


class DriverOutput:
    """Everything that a driver with these secrets has published before it ended."""

    def __init__(self, pages, folder):
        lines = [joined(secret.text for secret in line) for line in in_lines()]
        texts = {"lines": [*lines, *OWN_LINES], "conf": CONF, "options": OPTIONS}
        files = {"TEXTS": folder / "texts", "KEY": folder / "key", "LOG": folder / "log"}
        files["TEXTS"].write_text(json.dumps(texts))
        files["KEY"].write_text(OWN_KEY)
        environment = {name: str(path) for name, path in files.items()}
        pairs = [word for item in SESSION.items() for word in ("--conf", "=".join(item))]
        environment["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(pairs)} pyspark-shell"
        environment["SHOWN"] = f"{folder}/shown-"
        with Driver(SCRIPT, folder, PAGES=f"{pages.url}/{OWN_PATH}", **environment) as driver:
            driver.wait_for_line("done")
            assert driver.wait() == 0, driver.errors
        self.out = {path.name: path.read_text() for path in folder.glob("shown-*")}
        self.out["log"] = files["LOG"].read_text()
        self.out["pages"] = b"\n".join(request.body for request in pages.requests).decode()
        self.failed = {query for _, name, query in pages.reported if name == "StreamingQueryFailed"}

    def where(self, secret):
        """The outputs that contain a secret, in plain form or escaped as JSON."""
        return [
            name
            for name, text in self.out.items()
            if secret in text or json.dumps(secret)[1:-1] in text
        ]

    def published(self, secrets):
        """Where each of these secrets, by its kind, is published."""
        places = {kind: self.where(secret) for kind, secret in secrets.items()}
        return {kind: leaks for kind, leaks in places.items() if leaks}


@pytest.fixture(scope="module")
def died(tmp_path_factory):
    with PageRecorder() as pages:
        yield DriverOutput(pages, tmp_path_factory.mktemp("driver"))


def test_every_query_that_fails_with_secrets_is_reported(died):
    lines = {f"line-{index}" for index in range(len(in_lines()) + len(OWN_LINES))}

    assert died.failed == lines | {"conf", "options", "options-printed"}
    assert died.out["pages"].count("[redacted]") > len(PLANTED) / 2
    assert "contained error in test" in died.out["log"]
    assert {"shown-status", "shown-metrics", "shown-readyz"} < set(died.out)
    assert "ValueError" in died.out["shown-status"]


@pytest.mark.fault(
    "Names and texts",
    "A query that fails with secrets in its error",
    "No secret is published anywhere",
)
def test_failing_driver_publishes_no_secret(died):
    assert died.published({secret.kind: secret.secret for secret in PLANTED}) == {}


def test_secrets_that_only_settings_and_session_know_are_published_nowhere(died):
    secrets = [OWN_PATH, *ENCODED_KEYS, *OF_THE_SESSION]

    assert died.published({secret: secret for secret in secrets}) == {}
