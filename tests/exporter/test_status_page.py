"""``GET /``: one self-contained document without data."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

import pytest
from support.exporter_http import get, serving
from support.published_states import full_published

from querypulse.core.states import STATES
from querypulse.exporter import pages
from querypulse.recording.page import hash_of, style

FOLDER = Path(pages.__file__).parent / "status_page"


@cache
def sources():
    """The text of each source file of the page, by name."""
    suffixes = (".js", ".css", ".html")
    return {path.name: path.read_text() for path in FOLDER.iterdir() if path.suffix in suffixes}


def inside(page, tag):
    """The text of the only element of this kind."""
    (text,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    return text


@pytest.fixture(scope="module")
def answer():
    with serving(full_published()) as server:
        return get(server, "/")


def test_content_security_policy_allows_only_the_inline_script_and_style(answer):
    policy = dict(
        part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; ")
    )
    digests = {
        tag: base64.b64encode(hashlib.sha256(inside(answer.text, tag).encode()).digest()).decode()
        for tag in ("script", "style")
    }
    assert policy == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digests['script']}'",
        "style-src": f"'sha256-{digests['style']}' {hash_of(style())}",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_page_loads_nothing_from_other_servers(answer):
    document = answer.text.replace(inside(answer.text, "script"), "")
    loading = re.findall(r"\b(?:src|href)\s*=\s*[\"']?([^\"'\s>]*)", document)
    assert loading
    assert [
        link for link in loading if not link.startswith(("#", "data:")) and link != "status"
    ] == []
    assert re.findall(r"https?://\S+", answer.text) == ['http://www.w3.org/2000/svg";']
    assert not re.search(r"@import|url\(", sources()["page.css"])


def test_scripts_insert_data_only_as_text():
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc|\beval\b|new Function|javascript:"
    assert [name for name, source in sources().items() if re.search(ways, source)] == []


def test_page_has_order_colour_and_shape_for_each_state():
    script = "\n".join(sources()[name] for name in pages.SCRIPTS)
    table = re.search(r"const STATES = {(.*?)};", script, re.DOTALL)[1]
    shapes = re.search(r"const SHAPES = {(.*?)};", script, re.DOTALL)[1]
    assert tuple(re.findall(r"^  (\w+):", table, re.MULTILINE)) == STATES
    assert tuple(re.findall(r"^  (\w+):", shapes, re.MULTILINE)) == STATES
    for state in STATES:
        assert re.search(rf"^  --{state}: #[0-9A-F]{{6}};$", sources()["page.css"], re.MULTILINE)
        assert f'[data-state="{state}"] {{ --state: var(--{state});' in sources()["page.css"]


def test_token_protects_the_data_but_not_the_page():
    with serving(full_published(), token="t") as server:
        paths = ("/", "/?x=1", "/watch/page")
        assert [get(server, path).status_code for path in paths] == [200, 200, 401]
