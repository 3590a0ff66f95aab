"""Each mutation of the product breaks a property; a property that none breaks is useless."""

import logging

import pytest

from simulation.mutating import caught
from simulation.mutations import MUTATIONS
from simulation.world import run

FINDINGS = {
    *(f"L{number}" for number in range(1, 26)),
    *(f"A{number}" for number in range(1, 29)),
    *(f"S{number}" for number in range(1, 13)),
    *(f"B{number}" for number in range(1, 18)),
    *("N1", "N2", "N3"),
}
"""All findings: of signals (L), alerts (A), lessons (S), adoption (B) and of the simulator (N)."""

EXEMPT = {
    "threads, sockets and descriptors; the simulator has none": "L1 L10 A16 A23",
    "a call that the application makes, with no history behind it": "L2 S3 B4 B5 B15",
    "Py4J, Spark's sessions or its listener bus, which the simulator replaces": "L4 L7 L9 L11 L13 L22 S2 S4 S11",
    "one odd answer of a run: the probe's own code reads it, and the simulator replaces that": "L8 L21",
    "redaction of texts": "L12 A22",
    "polled brokers and the number of calls to a storage": "L19 L20",
    "a trigger that Spark refuses to show": "L18",
    "settings, files and the command line": "A12 A13 A15 A24 A25 B6 B12 B13 B14 B16",
    "the transport of `watch`, which the simulator replaces by polls": "A17 B3",
    "a default of the settings: which severities PagerDuty gets": "A27",
    "texts, links and evidence": "A28 S5 S6 S8 S9 B7 B8 B9 B10 B11 B17",
    "rules of Prometheus and their labels": "S10 B2",
    "a heartbeat to a service outside": "S7",
    "the bound of the queue of starts and ends": "S12",
}
"""Findings without a mutation, and why."""


@pytest.fixture(autouse=True)
def no_log():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.title)
def test_simulation_detects_the_mutation(mutation):
    outcome = caught(mutation)

    assert outcome is not None, f"{mutation.breaks} held in {mutation.seeds} histories"
    assert run(outcome.plan).violation != outcome.violation, "it also fails without the mutation"


def test_every_property_has_its_mutation():
    """P4 is P1 or P3 with another query in between."""
    broken = {name for one in MUTATIONS for name in one.breaks.split("|")}

    assert broken == {f"P{number}" for number in range(1, 10)}


def exempt():
    return [finding for findings in EXEMPT.values() for finding in findings.split()]


def test_every_finding_has_its_mutation_or_a_reason_to_have_none():
    assert FINDINGS - {one.finding for one in MUTATIONS} == set(exempt())


def test_no_exemption_is_stale():
    assert not {one.finding for one in MUTATIONS} & set(exempt())
    assert len(exempt()) == len(set(exempt()))
