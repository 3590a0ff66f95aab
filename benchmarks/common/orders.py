"""In which order candidates take their turns, so that no place in it favours one."""

from collections.abc import Sequence


def balanced(names: Sequence[str]) -> list[list[str]]:
    """As many orders as names: each has each place once, and each other before it once.

    A Williams design, which exists in this form for an even number of names.

    Raises:
        ValueError: the number is odd.

    """
    count = len(names)
    if count % 2:
        raise ValueError(f"no balanced orders of {count} names: the number must be even")
    first = [(-step // 2 if step % 2 else step // 2) % count for step in range(count)]
    return [[names[(place + shift) % count] for place in first] for shift in range(count)]
