"""Lists of names for people."""

from __future__ import annotations

import pytest

from querypulse.core.text import listed


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a, b"),
        (list("abcdefghi"), "a, b and 7 more"),
    ],
)
def test_first_names_and_the_count_of_the_others(names, text):
    assert listed(names, 2) == text
