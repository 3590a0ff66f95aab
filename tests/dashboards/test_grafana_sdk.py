"""Grafana's own Foundation SDK reads the dashboards without losing a key: none is misspelt."""

from __future__ import annotations

import json
import sys
import warnings

import pytest
from support.panels import DASHBOARDS

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="grafana-foundation-sdk needs Python 3.11"
)


def read_and_written(dashboard):
    """The dashboard after Grafana's own types have read it."""
    with warnings.catch_warnings():
        # It prefers the form that only Grafana 13 reads.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        return json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(dashboard))))


def lost(ours, theirs, path=""):
    """The paths of the keys that are in ours and not in theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        gone = [f"{path}/{key}" for key in ours if key not in theirs]
        kept = [key for key in ours if key in theirs]
        return gone + [one for key in kept for one in lost(ours[key], theirs[key], f"{path}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [one for place, pair in pairs for one in lost(*pair, f"{path}/{place}")]
    return [] if ours == theirs else [f"{path}: {ours!r} became {theirs!r}"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_key_is_lost(name):
    ours = DASHBOARDS[name]

    assert lost(ours, read_and_written(json.dumps(ours))) == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_knows_every_unit(name):
    from grafana_foundation_sdk.models import units

    known = {value for value in vars(units).values() if isinstance(value, str)}
    used = set(units_in(DASHBOARDS[name]))

    assert {"s", "none"} <= used
    assert used <= known


def units_in(value):
    """Every unit of a panel and of its columns or lines."""
    if isinstance(value, list):
        return [unit for part in value for unit in units_in(part)]
    if not isinstance(value, dict):
        return []
    here = [value["unit"]] if isinstance(value.get("unit"), str) else []
    here += [value["value"]] if value.get("id") == "unit" else []
    return here + [unit for part in value.values() for unit in units_in(part)]
