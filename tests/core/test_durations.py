"""Durations as people read them."""

from __future__ import annotations

from querypulse.core.text import duration


def test_duration_is_printed_in_readable_units():
    cases = {
        -3: "0 s",
        0.4: "0 s",
        95.6: "96 s",
        119.4: "119 s",
        119.6: "2 min",
        242: "4 min",
        7199: "119 min",
        7200: "2 h",
        12_000: "3 h 20 min",
        172_740: "47 h 59 min",
        172_800: "2 d",
        9 * 86_400 + 3600 * 4.5: "9 d 4 h",
    }

    assert {seconds: duration(seconds) for seconds in cases} == cases
