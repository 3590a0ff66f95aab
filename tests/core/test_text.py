"""Durations and lists of names as people read them."""

from __future__ import annotations

from querypulse.core.text import amount, duration, listed


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


def test_counts_are_shown_in_two_digits_or_below_1000_in_all():
    cases = {
        0: "0",
        0.25: "0.25",
        4.5: "4.5",
        95.4: "95",
        950: "950",
        1200: "1.2 k",
        38_400: "38 k",
        999_000: "999 k",
        1.25e6: "1.2 M",
        3.8e10: "38 G",
    }

    assert {count: amount(count) for count in cases} == cases


def test_first_names_and_the_count_of_the_others():
    assert listed([], 2) == ""
    assert listed(["a"], 2) == "a"
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(list("abcdefghi"), 2) == "a, b and 7 more"
