"""The shipped dashboards: laid out, the same throughout, with working links, keys and queries."""

from __future__ import annotations

import json
import re
import sys
import warnings

import pytest
from support.panels import (
    DASHBOARDS,
    ROOT,
    every_expression,
    every_target,
    filled,
    in_order,
    panels,
    values_of,
    variables,
)
from support.prometheus import assert_valid

from querypulse.core.states import STATES
from querypulse.settings.settings import DEFAULT_RUNBOOKS

WORST_FIRST = {str(15 - place): state for place, state in enumerate(STATES)}
"""A state as a number: Grafana draws numbers and shows words."""
each_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def strings(value):
    """Every text in a piece of JSON."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return [text for part in value for text in strings(part)] if isinstance(value, list) else []


@each_dashboard
def test_panels_fill_the_page_without_gaps_and_overlaps(name):
    assert_filled([panel["gridPos"] for panel in DASHBOARDS[name]["panels"]], 0)
    for row in DASHBOARDS[name]["panels"]:
        inner = [panel["gridPos"] for panel in row.get("panels", ())]
        assert_filled(inner, row["gridPos"]["y"] + 1)


def assert_filled(all_places, top):
    """Places in a grid of 24 columns, from the line ``top`` on."""
    lines = {}
    for place in all_places:
        lines.setdefault(place["y"], []).append(place)
    for y, places in sorted(lines.items()):
        left = 0
        for place in places:
            assert (place["x"], y, place["h"]) == (left, top, places[0]["h"])
            left += place["w"]
        assert left == 24
        top += places[0]["h"]


@each_dashboard
def test_dashboard_can_be_provisioned_as_it_is(name):
    """Its panels have ids and titles of their own, and its variables the same order and form in all."""
    dashboard = DASHBOARDS[name]
    numbers = [panel["id"] for panel in in_order(dashboard)]
    titles = [panel["title"] for panel in panels(dashboard)]
    names = [variable["name"] for variable in dashboard["templating"]["list"]]

    assert (dashboard["uid"], dashboard["schemaVersion"]) == (f"querypulse-{name}", 39)
    assert not {"id", "__inputs", "__requires", "__elements"} & set(dashboard)
    assert "DS_PROMETHEUS" not in json.dumps(dashboard)
    assert (len(set(numbers)), len(set(titles))) == (len(numbers), len(titles))
    assert names == ["datasource", "job", "instance", "app", "query"]
    # Grafana escapes a value for its regex only for multi-value variables.
    assert all(variable["multi"] for variable in variables(dashboard))


@each_dashboard
def test_panel_explains_a_missing_value_and_does_not_show_it_as_green(name):
    """Without a value, Grafana uses the colour of the first step."""
    defaults = {
        panel["title"]: panel["fieldConfig"]["defaults"] for panel in panels(DASHBOARDS[name])
    }
    numbers = [panel["title"] for panel in panels(DASHBOARDS[name]) if panel["type"] == "stat"]

    assert [title for title, shown in defaults.items() if not shown.get("noValue")] == []
    assert {defaults[title]["thresholds"]["steps"][0]["color"] for title in numbers} == {"#999999"}


@each_dashboard
def test_every_state_has_its_name_and_the_worst_has_the_highest_number(name):
    options = values_of(DASHBOARDS[name], "options")
    maps = [option for option in options if isinstance(option, dict) and "15" in option]

    assert len(maps) == {"fleet": 5, "query": 2}[name]
    assert all(
        {value: shown["text"] for value, shown in option.items()} == WORST_FIRST for option in maps
    )


# -- links ------------------------------------------------------------------------------------


def urls(dashboard):
    """Every address in links and in descriptions."""
    written = re.findall(r"\]\((http[^)]+)\)", "\n".join(strings(dashboard)))
    return {*values_of(dashboard, "url"), *written}


def has_target(url):
    if url.startswith("/d/"):
        return url[3:].partition("?")[0] in {dashboard["uid"] for dashboard in DASHBOARDS.values()}
    if url.startswith(f"{DEFAULT_RUNBOOKS}/"):
        file = url.removeprefix(f"{DEFAULT_RUNBOOKS}/")
        return file == "${__value.raw}.md" or (ROOT / "dashboards/runbooks" / file).is_file()
    return url == DEFAULT_RUNBOOKS


@each_dashboard
def test_every_link_has_a_target_and_keeps_the_selected_variables(name):
    links = urls(DASHBOARDS[name])

    assert len(links) > 8
    assert [url for url in links if not has_target(url)] == []
    for url in [url for url in links if url.startswith("/d/")]:
        assert all(f"${{{label}:queryparam}}" in url for label in ("datasource", "job", "instance"))
        assert "${app:queryparam}" in url or ":percentencode}" in url


# -- a fleet of forty jobs --------------------------------------------------------------------


def test_fleet_opens_with_the_worst_and_all_queries_are_in_rows_that_are_closed():
    shown = DASHBOARDS["fleet"]["panels"]
    rows = [panel for panel in shown if panel["type"] == "row"]
    opened = [panel for panel in shown if panel["type"] != "row"]
    tables = {
        panel["title"]: panel["options"]["sortBy"] for panel in opened if panel["type"] == "table"
    }

    assert [row["collapsed"] and bool(row["panels"]) for row in rows] == [True] * 6
    assert shown[-6:] == rows
    assert tables == {
        "Open alerts": [{"displayName": "severity", "desc": False}],
        "Applications": [{"displayName": "state", "desc": True}],
        "Queries that need attention": [{"displayName": "state", "desc": True}],
    }


def test_one_click_leads_from_an_application_to_its_queries_and_from_each_query_to_its_page():
    links = {}
    for panel in panels(DASHBOARDS["fleet"]):
        for override in panel["fieldConfig"]["overrides"]:
            for link in values_of(override["properties"], "url"):
                links[panel["title"], override["matcher"]["options"]] = link
    to_query = (
        "&var-app=${__data.fields.app:percentencode}&var-query=${__data.fields.query:percentencode}"
    )

    assert links["Applications", "app"].startswith("/d/querypulse-fleet?")
    assert links["Applications", "app"].endswith("&var-app=${__data.fields.app:percentencode}")
    for title in ("Open alerts", "Queries that need attention", "Every query"):
        assert links[title, "query"].startswith("/d/querypulse-query?"), title
        assert links[title, "query"].endswith(to_query), title


def test_warning_is_amber_and_red_is_left_for_what_is_critical():
    shown = {panel["title"]: panel["fieldConfig"] for panel in panels(DASHBOARDS["fleet"])}
    open_now = shown["Alerts open now"]
    (warning,) = open_now["overrides"]

    assert warning["matcher"]["options"] == "warning"
    assert "#D55E00" in values_of(open_now["defaults"], "color")
    assert values_of(warning, "color")[-1] == "#E69F00"
    # QuerypulseDeliveryFailing is a warning.
    for title in ("Receivers", "Pages"):
        assert "#D55E00" not in str(shown[title]), title


def test_each_series_of_a_dashboard_keeps_its_app():
    """Two jobs may have receivers, queries and topics of the same names."""
    groups = {
        (name, labels)
        for name, text in every_expression().items()
        for labels in re.findall(r"by \(([^)]*)\)", text)
    }

    assert [group for group in groups if "app" not in re.findall(r"\w+", group[1])] == []
    assert [
        name
        for name, text in every_expression().items()
        if "querypulse_" in text and "app=~" not in text
    ] == []


def test_no_query_evaluates_a_subquery():
    """Each refresh would evaluate all its steps: 1,440 of each series for six hours in steps of 15 s."""
    assert [
        name for name, text in every_expression().items() if re.search(r"\[\w+:\w*\]", text)
    ] == []


# -- queries ----------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_every_query_parses(tmp_path):
    assert_valid([filled(expression) for expression in every_expression().values()], tmp_path)


def test_legends_use_labels_that_their_queries_keep():
    """The live tests check this too, but not for a series that is rightly absent."""
    lost = {}
    for name, target in every_target().items():
        used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
        lost[name] = used - kept

    assert {name: labels for name, labels in lost.items() if labels} == {}


# -- keys, as Grafana's own Foundation SDK reads them ------------------------------------------

needs_sdk = pytest.mark.skipif(
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
        return gone + [
            entry for key in kept for entry in lost(ours[key], theirs[key], f"{path}/{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [entry for place, pair in pairs for entry in lost(*pair, f"{path}/{place}")]
    return [] if ours == theirs else [f"{path}: {ours!r} became {theirs!r}"]


@needs_sdk
@each_dashboard
def test_no_key_is_lost(name):
    ours = DASHBOARDS[name]

    assert lost(ours, read_and_written(json.dumps(ours))) == []


@needs_sdk
@each_dashboard
def test_grafana_knows_every_unit(name):
    from grafana_foundation_sdk.models import units

    overrides = [entry for part in values_of(DASHBOARDS[name], "properties") for entry in part]
    used = {unit for unit in values_of(DASHBOARDS[name], "unit") if isinstance(unit, str)}
    used |= {entry["value"] for entry in overrides if entry["id"] == "unit"}

    assert {"s", "none"} <= used
    assert [unit for unit in used if unit not in vars(units).values()] == []
