"""Durations and lists of names as people read them."""

from __future__ import annotations

from querypulse.core.text import duration, listed


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


def test_first_names_and_the_count_of_the_others():
    assert listed([], 2) == ""
    assert listed(["a"], 2) == "a"
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(list("abcdefghi"), 2) == "a, b and 7 more"
