"""The pictures of README and docs: small, without scripts, and the demo's moves as it happened."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from support.repository import ROOT

PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture(monkeypatch):
    """Draw lines of output; returns the root of the SVG and the texts in it."""
    monkeypatch.syspath_prepend(str(ROOT))
    from tools.terminal import Line, picture

    def draw(*lines):
        drawn = picture("a title", "run", [Line(at, text) for at, text in lines])
        root = ET.fromstring(drawn)
        return drawn, ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]

    return draw


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_picture_is_small(path):
    assert path.stat().st_size <= 200_000


def test_demo_is_a_recording_whose_page_arrives_and_runs_no_script():
    root = ET.parse(ROOT / "docs" / "pictures" / "demo.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    drawn = ET.tostring(root, encoding="unicode")

    assert texts[0].startswith("$ querypulse demo")
    assert any("| alertname    StreamingQueryFailed" in text for text in texts)
    assert texts[-1].split() == ["result", "as", "expected"]
    assert list(root.iter(f"{SVG}script")) == []
    assert "http://127.0.0.1" in drawn
    assert "prefers-color-scheme:dark" in drawn


def test_output_is_text_and_is_escaped(picture):
    _, texts = picture((0, '[   0.1 s] <b> & "c"'), (1, ""), (2, "  | alertname  X"))

    assert texts == ["$ run", '[   0.1 s] <b> & "c"', "  | alertname  X"]


def test_lines_come_in_their_order_and_long_waits_are_cut(picture):
    drawn, _ = picture((0, "a"), (1, "b"), (3600, "c"))
    starts = [float(part.partition("%")[0]) for part in drawn.split("{opacity:0}")[1:]]

    assert starts == sorted(starts)
    assert starts[-1] < 50, "most of the time is the last screen's"


def test_long_output_scrolls_to_its_last_line_also_without_animation(picture):
    drawn, texts = picture(*((number / 10, f"line {number}") for number in range(50)))

    assert len(texts) == 51
    assert "animation-name:up;transform:translateY(-342px)" in drawn
    assert "prefers-reduced-motion:reduce" in drawn
