"""Every TOML example of the documents is one that ``attach`` accepts."""

from __future__ import annotations

import re
import sys

import pytest
from support.repository import ROOT

from querypulse.settings.receivers import receivers, routes
from querypulse.settings.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL))
]
SECRETS = {
    "routing_key_file": "R0123456789abcdefghijklmnopqrstu",
    "pagerduty_routing_key_file": "R0123456789abcdefghijklmnopqrstu",
    "secret_files": "whsec_" + "QUJD" * 12,
    "webhook_secret_file": "whsec_" + "QUJD" * 12,
    "password_file": "word",
}
CERTIFICATES = {"ca_file", "client_cert_file", "client_key_file"}


def usable(table, folder):
    """The table with files that exist; certificates are left out."""
    made = {}
    for name, value in table.items():
        if name in CERTIFICATES:
            continue
        if name.endswith(("_file", "_files")) and name != "silence_file":
            file = folder / name
            file.write_text(SECRETS.get(name, "https://hooks.example.com/x"))
            made[name] = [str(file)] if isinstance(value, list) else str(file)
        elif isinstance(value, dict):
            made[name] = usable(value, folder)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [usable(one, folder) for one in value]
        else:
            made[name] = value
    return made


def test_there_are_examples():
    assert len(BLOCKS) > 5


@pytest.mark.parametrize("block", BLOCKS)
def test_example_can_be_used(block, tmp_path):
    settings = Settings(**usable(tomllib.loads(block), tmp_path))
    made = receivers(settings)

    assert {one.name for one in made} == routes(settings).keys()
