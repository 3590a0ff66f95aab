"""What one Prometheus passes on to another: at most ten series of each driver."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import yaml
from msgspec.structs import replace
from support.exporter_http import serving
from support.metrics_page import RECORDED
from support.patience import until
from support.prometheus import RealPrometheus, accepted
from support.published_states import full_published, full_story
from support.repository import RULES, families, rules_of, series

from querypulse.core.states import STATES

MOST_SERIES = 10
UNHEALTHY_FROM = "watermark_stuck"
PROFILES = sorted(RULES.glob("profiles/*.yaml"))


def profile(name):
    return yaml.safe_load((RULES / "profiles" / f"{name}.yaml").read_text())


@pytest.mark.prometheus
def test_rules_make_what_their_promtool_tests_say_and_promtool_accepts_the_profiles():
    accepted("promtool", "test", "rules", RULES / "tests" / "federation.yaml")
    accepted("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES / "federation.yaml")
    for path in PROFILES:
        accepted("promtool", "check", "config", "--syntax-only", path)


def test_unhealthy_are_the_states_in_which_something_is_wrong():
    (rule,) = (
        rule
        for rule in rules_of("federation")
        if rule["record"] == "querypulse:queries_unhealthy:sum"
    )

    assert f">= bool {len(STATES) - STATES.index(UNHEALTHY_FROM)})" in rule["expr"]


def test_page_of_metrics_has_each_series_that_is_passed_on():
    assert [rule["record"] for rule in rules_of("federation")] == list(RECORDED)


def test_rules_have_the_names_of_the_profiles_and_only_metrics_of_a_driver():
    (write,) = profile("remote-write")["remote_write"][0]["write_relabel_configs"]
    (job,) = profile("global")["scrape_configs"]
    for rule in rules_of("federation"):
        assert rule["record"].startswith("querypulse:")
        assert any(name in rule["expr"] for name in {*families(), *series()})

    assert (write["regex"], write["action"]) == ("querypulse:.+", "keep")
    assert '{__name__=~"querypulse:.+"}' in job["params"]["match[]"]


def driver(app, queries):
    """A driver with so many queries, some of which have failed."""
    story = full_story()
    for number in range(queries):
        story.started(f"q{number}", at=50)
        if number % 5 == 0:
            story.failed(f"q{number}", at=60)
    shown = full_published(app=app)
    changed = replace(shown, snapshot=story.snapshot(100.0))
    return replace(changed, health={**shown.health, **story.evaluate(100.0).health})


@pytest.mark.slow
@pytest.mark.prometheus
def test_real_prometheus_passes_on_ten_series_of_each_driver_however_many_queries_it_has(tmp_path):
    sizes = {"small": 1, "middle": 20, "large": 100}
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(serving(driver(app, queries))).url for app, queries in sizes.items()
        ]
        leaf_folder, global_folder = tmp_path / "leaf", tmp_path / "global"
        leaf_folder.mkdir()
        global_folder.mkdir()
        leaf = stack.enter_context(
            RealPrometheus(leaf_folder, drivers, rules=[RULES / "federation.yaml"])
        )
        (job,) = profile("global")["scrape_configs"]
        targets = [{"targets": [urlsplit(leaf.url).netloc]}]
        job = {**job, "scrape_interval": "1s", "static_configs": targets}
        above = stack.enter_context(RealPrometheus(global_folder, (), jobs=[job]))

        def passed_on():
            counts = above.query('count by (app) ({__name__=~"querypulse:.+"})')
            return {row["metric"]["app"]: int(row["value"][1]) for row in counts}

        # The two rates need two scrapes.
        until(
            lambda: (seen := passed_on()).keys() == sizes.keys() and min(seen.values()) > 8,
            "the global Prometheus has the series of each driver",
        )
        scraped = {
            row["metric"]["app"]: int(row["value"][1])
            for row in leaf.query('count by (app) ({app=~".+", __name__!~"querypulse:.+"})')
        }

        assert max(passed_on().values()) <= MOST_SERIES
        assert scraped["large"] > 50 * MOST_SERIES
        (active,) = above.query('querypulse:queries_active:sum{app="large"}')
        assert active["value"][1] == "81"
