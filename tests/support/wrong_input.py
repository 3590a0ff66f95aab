"""Wrong input of every kind, and what the product answers: ``fixtures/wrong_input.txt``.

``python -m support.wrong_input``, in ``tests``, writes the answers again.

In the page, ``$`` begins a command, ``toml>`` a file of settings for ``querypulse check``, ``conf>``
a line of the Spark conf, and ``>>>`` Python. ``/files`` is a folder of files that cannot be used.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import trustme
from cryptography.hazmat.primitives import serialization

from querypulse.commands import cli
from querypulse.core.guard import Guard
from querypulse.settings.loading import load_settings
from querypulse.settings.settings import SettingsError
from querypulse.sidecar import Settings, Sidecar
from querypulse.sidecar.assemble import Components

PAGE = Path(__file__).parent.parent / "fixtures" / "wrong_input.txt"
FOLDER = "/files"
ACCEPTED = "ACCEPTED"


def entries() -> list[tuple[str, str]]:
    """Each input of the page with its answer."""
    parts = re.split(r"\n{2,}", PAGE.read_text(encoding="utf-8"))
    pairs = [part.strip().partition("\n") for part in parts if not part.startswith("#")]
    return [(given, answer) for given, _, answer in pairs]


def answer(given: str, folder: Path) -> str:
    """What the product answers to one input; ``ACCEPTED`` if it refuses nothing."""
    kind, _, text = given.partition(" ")
    text = text.replace(FOLDER, str(folder))
    return _WAYS[kind](text, folder).replace(str(folder), FOLDER).strip()


def _command(text: str, _folder: Path) -> str:
    words = shlex.split(text)
    variables = [word for word in words[: words.index("querypulse")] if "=" in word]
    output, errors = StringIO(), StringIO()
    environment = {key: value for key, value in os.environ.items() if "QUERYPULSE" not in key}
    environment |= dict(variable.split("=", 1) for variable in variables)
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            code = cli.main(words[words.index("querypulse") + 1 :])
        except SystemExit as end:
            code = end.code
    lines = errors.getvalue().strip().splitlines()
    return lines[-1] if code and lines else f"{ACCEPTED} {output.getvalue()}"


def _file(text: str, folder: Path) -> str:
    path = folder / "settings.toml"
    path.write_text(text.replace("\\n", "\n"), encoding="utf-8")
    return _command(f"QUERYPULSE_CONFIG={path} querypulse check", folder)


def _conf(text: str, _folder: Path) -> str:
    key, _, value = text.partition("=")
    return _raised(lambda: Components(load_settings({}, {}, {key: value}).settings, Guard()))


def _python(text: str, _folder: Path) -> str:
    names = {"Settings": Settings, "sidecar": Sidecar(Settings(http_port=-1))}
    return _raised(lambda: eval(text, names))


def _raised(call: Callable[[], object]) -> str:
    try:
        return f"{ACCEPTED} {call()}"
    except (SettingsError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


_WAYS = {"$": _command, "toml>": _file, "conf>": _conf, ">>>": _python}


def lay(folder: Path) -> Path:
    """Write the files that cannot be used."""
    authority = trustme.CA()
    pair, other = (authority.issue_cert("127.0.0.1") for _ in range(2))
    key = pair.private_key_pem.bytes()
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    contents = {
        "empty": b"",
        "binary": b"\xff\xfe\x00\x80" * 8,
        "huge": b"x" * 2_000_000,
        "text": b"no logs, no keys\n",
        "utf16.toml": "http_port = 9719\n".encode("utf-16"),
        "broken.toml": b"http_port: 9719\n",
        "cert.pem": pair.cert_chain_pems[0].bytes(),
        "key.pem": key,
        "other-key.pem": other.private_key_pem.bytes(),
        "encrypted-key.pem": encrypted,
        "cert.der": b"\x30\x82\x01\x00" * 8,
        "keystore.jks": b"\xfe\xed\xfe\xed" * 8,
        "damaged.pem": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "token": b"a" * 32,
        "headers": b"no header",
        "silences.json": b"[{",
        "targets": b"no url\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    for name in ("folder", "without-logs"):
        (folder / name).mkdir(exist_ok=True)
    return folder


def pages() -> Iterator[str]:
    """The page with its answers made again."""
    head, _, _ = PAGE.read_text(encoding="utf-8").partition("\n\n")
    yield head
    with tempfile.TemporaryDirectory() as folder:
        files = lay(Path(folder))
        for given, _ in entries():
            yield f"{given}\n{answer(given, files)}"


if __name__ == "__main__":
    PAGE.write_text("\n\n".join(pages()) + "\n", encoding="utf-8")
