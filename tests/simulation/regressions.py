"""Seeds and plans that failed once; each line is a test for ever."""

from __future__ import annotations

import msgspec

from .generate import Terms, generate
from .plan import Plan


class Seed(msgspec.Struct, frozen=True):
    """A seed, what it once broke, and under which terms; without terms, the usual ones."""

    number: int
    what: str
    terms: Terms = Terms()

    @property
    def plan(self) -> Plan:
        """What the seed means under its terms."""
        return generate(self.number, self.terms)


SEEDS = (
    Seed(149, "a failed query that is stopped before it shows life has not recovered"),
    Seed(385, "a stalled query whose driver is killed and started again"),
    Seed(663, "a batch that hangs, and then only crawls"),
    Seed(1156, "a query that is gone, in a driver that is killed"),
    Seed(1252, "a source that answers at last, and a batch that hangs then"),
)
