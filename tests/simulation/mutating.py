"""Replaces a part of the product by its state before a fix, and checks that this is detected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from .generate import generate
from .plan import Plan
from .terms import Terms
from .world import PlanOutcome, run


class Mutation(msgspec.Struct, frozen=True):
    """Replaces ``owner.name`` by ``by``.

    It ``breaks`` one of these properties within ``seeds`` histories of ``terms``, or in ``plan``.
    """

    what: str
    breaks: str
    owner: Any
    name: str
    by: Any
    terms: Terms = Terms()
    seeds: int = 25
    first: int = 1
    """Where the search starts: at a seed that has shown the mutation before."""
    plan: Plan | None = None
    essential: bool = False
    """Whether no other one covers its decision; the rest are tried at night."""


def only(*kinds: str, around: tuple[str, ...] = (), **other: Any) -> Terms:
    """Short histories with little besides the named steps."""
    return Terms(
        **{
            "every": (1.0, 2.0, 5.0, 10.0, 20.0), "real_time": 0.0, "polls": (0.0,), "dated": 0.0,
            "apart": 0.0, "jumps_back": 0.0, "late_kinds": ("idle",),
            "twins_end": False,
            "minutes": (5.0,), "queries": (2,), "steps": (2, 3), "finite": 0.0, "declares": 0.0,
            "to_query": tuple((kind, 1.0) for kind in kinds or ("repeat",)),
            "around": tuple((kind, 1.0) for kind in around or ("acknowledge",)),
            "around_share": 0.5 if around else 0.0,
            **other,
        }
    )  # fmt: skip


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Apply the mutation to the product within the block."""
    before = mutation.owner.__dict__[mutation.name]
    setattr(mutation.owner, mutation.name, mutation.by)
    try:
        yield
    finally:
        setattr(mutation.owner, mutation.name, before)


def caught(mutation: Mutation) -> PlanOutcome | None:
    """The first history that breaks the property, or None."""
    with applied(mutation):
        for plan in plans(mutation):
            outcome = run(plan)
            if outcome.violation in mutation.breaks.split("|"):
                return outcome
    return None


def plans(mutation: Mutation) -> Iterator[Plan]:
    """The histories in which the mutation must be detected."""
    if mutation.plan is not None:
        yield mutation.plan
        return
    for seed in range(mutation.first, mutation.first + mutation.seeds):
        yield generate(seed, mutation.terms)
