"""A colour means the same on the status page and in Grafana, and never carries meaning alone."""

from __future__ import annotations

import re
import runpy

import pytest
from support.repository import ROOT, grafana

from querypulse.core.states import STATES

MEANING = {
    "#D55E00": {"failed", "missing", "stopped_unexpectedly"},
    "#CC79A7": {"stalled", "flapping"},
    "#E69F00": {"rewound", "slow", "lagging", "watermark_stuck"},
    "#56B4E9": {"waiting", "idle"},
    "#009E73": {"running"},
    "#0072B2": {"starting"},
    "#999999": {"stopped", "completed"},
}
"""Okabe and Ito's colour-blind-safe palette: failed, stuck, degraded, quiet, healthy, new, ended."""

EXPECTED = {state: colour for colour, states in MEANING.items() for state in states}
READABLE = 4.5
"""WCAG 2.1, contrast (minimum)."""

CSS = (ROOT / "exporter" / "status_page" / "page.css").read_text()


def contrast(one, other):
    """The contrast of two colours by WCAG's formula, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def page_colours():
    """State -> every colour that the page's style gives it, in light and dark."""
    return {state: set(re.findall(rf"--{state}:\s*(#[0-9A-Fa-f]{{6}})", CSS)) for state in STATES}


def texts(value):
    """(text, colour) wherever a dashboard maps a value to both."""
    if isinstance(value, list):
        return [pair for part in value for pair in texts(part)]
    if not isinstance(value, dict):
        return []
    own = [(value["text"], value.get("color"))] if isinstance(value.get("text"), str) else []
    return own + [pair for part in value.values() for pair in texts(part)]


def test_every_state_has_a_colour():
    assert set(EXPECTED) == set(STATES)


def test_contrast_matches_published_values():
    """The tests below depend on this function."""
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def test_status_page_uses_the_palette():
    assert page_colours() == {state: {colour} for state, colour in EXPECTED.items()}


def test_state_name_is_readable_on_its_colour():
    inks = dict.fromkeys(STATES, re.search(r"--on-state:\s*(#\w{6});\s*\n", CSS)[1])
    inks |= dict(re.findall(r'\[data-state="(\w+)"\][^}]*--on-state:\s*(#\w{6})', CSS))

    poor = {state for state, ink in inks.items() if contrast(EXPECTED[state], ink) < READABLE}
    assert poor == set()


def test_dashboard_generator_uses_the_palette():
    palette = runpy.run_path(str(ROOT / "tools" / "grafana" / "palette.py"))

    assert palette["STATES"] == EXPECTED


@pytest.mark.parametrize("name", ["fleet.json", "query.json"])
def test_dashboard_shows_each_state_with_its_name_and_colour(name):
    shown = {(text, colour) for text, colour in texts(grafana()[name]) if text in STATES and colour}

    assert shown == set(EXPECTED.items())
