"""Lists of names for people."""

from __future__ import annotations

from querypulse.core.text import listed


def test_first_names_and_the_count_of_the_others():
    assert listed([], 2) == ""
    assert listed(["a"], 2) == "a"
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(list("abcdefghi"), 2) == "a, b and 7 more"
