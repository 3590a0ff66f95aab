"""The targets of ``make fuzz`` hold for their seeds and for every input that once broke a promise."""

from __future__ import annotations

import pytest
from fuzzing import targets
from fuzzing.found import FOUND
from fuzzing.seeds import LETTERS, SEEDS, events
from fuzzing.targets import TARGETS, Broken

from querypulse.listener.events import DecodeError

INPUTS = [(name, data) for name, seeds in SEEDS.items() for data in seeds()]


@pytest.mark.parametrize(("target", "data"), INPUTS)
def test_promises_hold_for_the_seeds(target, data):
    TARGETS[target](data)


@pytest.mark.fault(
    "Events",
    "What coverage-guided fuzzing found at the decoder, the state, the HTTP server and the settings",
    "A value, or a rejection that is counted or reported",
)
@pytest.mark.parametrize(
    ("target", "what", "data"), FOUND, ids=[f"{one[0]}: {one[1]}" for one in FOUND]
)
def test_promises_hold_for_what_fuzzing_has_found(target, what, data):
    TARGETS[target](data)


def test_each_target_has_seeds_and_each_kind_of_event_is_one():
    assert SEEDS.keys() == TARGETS.keys()
    assert {data[:1] for data in events()} == set(LETTERS.values())


def test_an_error_of_the_decoder_is_noticed(monkeypatch):
    def broken(kind, text):
        raise KeyError("an unknown field")

    monkeypatch.setattr(targets, "decode", broken)
    with pytest.raises(KeyError):
        targets.events(b"P{}")


def test_a_rejected_event_is_no_error(monkeypatch):
    def reject(kind, text):
        raise DecodeError("no event")

    monkeypatch.setattr(targets, "decode", reject)
    targets.events(b"P{}")


def test_data_without_the_token_is_noticed(monkeypatch):
    monkeypatch.setattr(targets.RequestHandler, "_may_read", lambda _: True)
    with pytest.raises(Broken, match="state'\\] without the token"):
        targets.http(b"GET /status HTTP/1.1\r\n\r\n")


def test_an_error_without_its_source_is_noticed(monkeypatch):
    def refuse(*_):
        raise targets.SettingsError("no")

    monkeypatch.setattr(targets, "load_settings", refuse)
    with pytest.raises(Broken, match="without its source"):
        targets.settings(b"Ea=b")


def test_an_error_of_a_rule_is_noticed(monkeypatch):
    monkeypatch.setattr(targets, "status", lambda _: {"a": object()})
    with pytest.raises(TypeError):
        targets.state(b"")
