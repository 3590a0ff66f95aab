"""What users may rely on: names, fields, and that nothing else is in the way."""

from __future__ import annotations

import pickle
import re
from inspect import signature
from typing import get_type_hints

import pytest
from support.repository import ROOT

import querypulse
from querypulse import Alert, QueryFailure, QueryStatus, Settings, Sidecar, Status, attach

PAGE = (ROOT / "docs" / "api.md").read_text()
RECORDS = {"Status": Status, "QueryStatus": QueryStatus, "Alert": Alert}
METHODS = {
    *("url", "snapshot", "alerts", "flush", "close", "await_any_failure", "supervise"),
    *("expect_stop", "forget", "silence"),
}


def promised(name):
    """The fields that the table *What may be relied on* names for a record."""
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    return re.findall(r"`(\w+)`(?!\))", row.split(":")[0])


@pytest.mark.parametrize("name", RECORDS)
def test_promised_fields_are_there(name):
    record = RECORDS[name]
    fields = {*record.__struct_fields__, *vars(record)}

    assert getattr(querypulse, name) is record
    assert promised(name)
    assert [field for field in promised(name) if field not in fields] == []


@pytest.mark.parametrize("record", [*RECORDS.values(), Settings])
def test_promised_records_are_frozen(record):
    assert record.__struct_config__.frozen


def test_what_the_contract_names_of_a_query_is_promised():
    """``contract.md``: the fields of ``/status`` that outside programs read."""
    contract = {
        *(
            "name",
            "id",
            "run_id",
            "state",
            "reason",
            "last_commit_batch",
            "last_commit_age_seconds",
        ),
        *("window_seconds", "batch_in_flight_seconds", "lag_offsets", "error_class"),
    }

    assert contract <= set(promised("QueryStatus"))


def test_sidecar_has_no_other_public_members():
    members = {name for name in vars(Sidecar) if not name.startswith("_")}
    own = {name for name in vars(Sidecar(http_port=-1)) if not name.startswith("_")}

    assert members == METHODS
    assert own == {"settings", "listener", "collector", "closed"}
    assert [name for name in members if getattr(Sidecar, name).__doc__ is None] == []


def test_results_have_public_types():
    assert get_type_hints(Sidecar.snapshot)["return"] is Status
    assert get_type_hints(Sidecar.alerts)["return"] == tuple[Alert, ...]


@pytest.mark.parametrize("function", [attach, Sidecar.__init__])
def test_annotations_can_be_read_by_tools_that_build_on_them(function):
    hints = get_type_hints(function)

    assert hints["settings"] == (Settings | None)
    assert "stall_floor_seconds" in signature(function).parameters


def test_failure_of_a_query_comes_from_a_worker_process_to_its_parent():
    failure = pickle.loads(pickle.dumps(QueryFailure("bronze", "ValueError: bad")))

    assert isinstance(failure, QueryFailure)
    assert (failure.query, failure.reason) == ("bronze", "ValueError: bad")
    assert str(failure) == "streaming query bronze: ValueError: bad"
