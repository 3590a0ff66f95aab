"""``docs/faults.md`` has a row for each fault that a test makes happen, and says what its runs found."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from support.faults import CASES, MEASURED, Fault, Result, Results, SuiteRun, in_text, marked, read
from support.faults_page import FAILED, NOT_RUN, line, link, page
from support.repository import ROOT

ROW = re.compile(
    rf"\| (?P<done>.*) \| (?:(?:{re.escape(FAILED)}|{NOT_RUN}): )?(?P<held>.*)"
    r" \| .* \| (?P<link>\[`[^`]*`\]\([^)]*\)).* \|"
)
TODAY, BEFORE = SuiteRun("2026-11-24", "4.3.0", "3.11"), SuiteRun("2026-11-20", "4.1.3", "3.11")
FAULT = Fault("Disk", "The disk is full", "It is reported")
TEST = "tests/alerting/outbox/test_spool.py::test_full_disk"


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "faults.json"


def rows(text):
    return [row for row in text.splitlines() if "](../tests/" in row]


def report(case="", outcome="passed", when="call", **properties):
    return SimpleNamespace(
        nodeid=f"{TEST}{case}@test_spool.py",
        outcome=outcome,
        failed=outcome == "failed",
        when=when,
        user_properties=list(properties.items()),
    )


def case(name, outcome="passed", cases=2, **properties):
    """The reports of one case of a test of ``cases`` cases."""
    said = {CASES: cases, **properties}
    return [report(f"[{name}]", when="setup", **said), report(f"[{name}]", outcome, **said)]


def ran(path, *reports, run=TODAY):
    """The kept result after one more run."""
    results = Results(run, frozenset({TEST}))
    for one in reports:
        results.add(one)
    results.write(path)
    return read(path).get(TEST)


def shown(result):
    return line(FAULT, TEST, result)


# -- the page of this checkout ----------------------------------------------------------------


def test_every_fault_has_a_row_and_every_row_a_fault():
    text = (ROOT / "docs" / "faults.md").read_text()
    found = [ROW.fullmatch(row).group("done", "held", "link") for row in rows(text)]

    assert found == [(one.done, one.held, link(test)) for one, test in order(marked())]
    assert len(found) > 50


def order(faults):
    return sorted((fault, test) for test, fault in faults.items())


def test_faults_are_found_in_the_text_of_a_test():
    text = '@pytest.mark.fault("A", "b", "c")\n@other\ndef test_x():\n    pass\n\ndef test_y():\n    pass\n'

    assert list(in_text(text)) == [("test_x", Fault("A", "b", "c"))]


# -- what a run keeps --------------------------------------------------------------------------


def test_a_run_of_all_cases_that_pass_holds(kept):
    result = ran(kept, *case("a"), *case("b", **{MEASURED: "0.2 s"}))

    assert result == Result(True, 2, 2, "0.2 s", TODAY)


def test_a_run_of_some_cases_keeps_the_result_of_all(kept):
    whole = ran(kept, *case("a"), *case("b"), run=BEFORE)

    assert ran(kept, *case("a")) == whole
    assert ran(kept, *case("b", "skipped")) == whole


def test_a_run_of_some_cases_shows_nothing_of_its_own(kept):
    assert ran(kept, *case("a")) is None
    assert not kept.exists()


def test_a_run_of_chosen_cases_does_not_know_all_cases(kept):
    assert ran(kept, report("[a]")) is None


def test_a_skipped_test_that_was_torn_down_is_not_run(kept):
    """Pytest reports that the teardown passed, although no test ran."""
    reports = (report(outcome="skipped", when="setup", cases=1), report(when="teardown", cases=1))

    assert ran(kept, *reports) is None


def test_a_test_left_out_keeps_its_last_result(kept):
    whole = ran(kept, *case("a"), *case("b"), run=BEFORE)
    skipped = [
        report("[a]", "skipped", "setup", cases=2),
        report("[b]", "skipped", "setup", cases=2),
    ]

    assert ran(kept, *skipped) == whole


def test_cases_that_cannot_run_here_are_counted(kept):
    result = ran(kept, *case("a"), report("[b]", "skipped", "setup", cases=2))

    assert (result.holds, result.passed, result.cases) == (True, 1, 2)
    assert shown(result).endswith("(1 of 2 cases ran) |")


@pytest.mark.parametrize(
    "failure",
    [
        case("a", "failed"),
        [report("[a]", "failed", "setup", cases=2)],
        [*case("a"), report("[a]", "failed", "teardown", cases=2)],
        [report("[a]", "failed", "???")],
    ],
    ids=["call", "setup", "teardown", "crashed worker"],
)
def test_a_failed_case_of_any_run_does_not_hold(kept, failure):
    ran(kept, *case("a"), *case("b"), run=BEFORE)
    result = ran(kept, *failure)

    assert not result.holds
    assert result.run == TODAY
    assert shown(result).startswith(f"| The disk is full | {FAILED}: It is reported |")


def test_an_expected_failure_does_not_hold(kept):
    expected = report("", "skipped")
    expected.wasxfail = "not built yet"

    assert not ran(kept, expected).holds


def test_a_passing_teardown_hides_no_failure(kept):
    assert not ran(kept, *case("a", "failed", 1), report("[a]", when="teardown", cases=1)).holds


def test_a_complete_run_holds_again_after_a_failure(kept):
    ran(kept, *case("a", "failed"))
    assert not ran(kept, *case("b")).holds
    assert ran(kept, *case("a"), *case("b")).holds


def test_tests_without_a_fault_are_not_kept(kept):
    results = Results(TODAY, frozenset())
    results.add(report())
    results.write(kept)

    assert not kept.exists()


def test_results_of_another_version_are_ignored(kept):
    kept.write_text('{"tests/a.py::test_a": [1, ""], "tests/a.py::test_b": {"holds": true}}')

    assert read(kept) == {}


# -- what the page says ------------------------------------------------------------------------


def test_a_fault_that_never_ran_says_so():
    assert shown(None).startswith(f"| The disk is full | {NOT_RUN}: It is reported |")


def test_rows_are_in_the_order_of_their_texts_whatever_ran():
    faults = {
        "tests/b.py::test_b": Fault("Disk", "b", "held"),
        "tests/c.py::test_c": Fault("Clock", "c", "held"),
        "tests/a.py::test_a": Fault("Disk", "a", "held"),
    }
    held = Result(True, 1, 1, "", TODAY)
    pages = [page(faults, {test: held for test in faults if test != one}) for one in faults]

    for text in pages:
        assert [row[2] for row in rows(text)] == ["c", "a", "b"]


def test_one_line_says_which_runs_the_page_is_of():
    results = {"a": Result(True, 1, 1, "", TODAY), "b": Result(True, 1, 1, "", BEFORE)}
    faults = dict.fromkeys("ab", FAULT)

    assert "Runs from 2026-11-20 to 2026-11-24, on Spark 4.1.3, 4.3.0 and Python 3.11." in page(
        faults, results
    )
    assert "Runs of 2026-11-24, on Spark 4.3.0 and Python 3.11." in page(
        faults, {"a": results["a"]}
    )
    assert page(faults, results).count("2026-11-24") == 1
