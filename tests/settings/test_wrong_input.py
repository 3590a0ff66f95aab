"""Every answer to a wrong input says what was given, where, what is allowed, and an example.

The inputs of ``fixtures/wrong_input.txt`` have their answers there; those of settings are made from
the record ``Settings``, so that a new setting is held to the same.
"""

from __future__ import annotations

import copy
import re
import sys
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Meta
from support.wrong_input import ACCEPTED, answer, entries, lay

from querypulse.alerting.receivers import RECEIVER_TYPES
from querypulse.core.guard import Guard
from querypulse.core.secret import Holds
from querypulse.settings.allowed import meant, plain
from querypulse.settings.loading import load_settings
from querypulse.settings.settings import HOLDS, TYPES, QuerySettings, SettingsError, check_value
from querypulse.sidecar.assemble import Components

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return lay(tmp_path_factory.mktemp("wrong"))


@pytest.mark.fault(
    "Settings",
    "Wrong input of settings, files, commands and calls",
    "The answer names the input, its place and what is allowed",
)
@pytest.mark.parametrize(("given", "written"), entries(), ids=[given for given, _ in entries()])
def test_wrong_input_is_refused_with_its_answer(given, written, folder):
    assert answer(given, folder) == written
    assert ACCEPTED not in written


def bare(kind: Any) -> tuple[Any, list[Meta]]:
    """A type without None and without its limits, and the limits."""
    kind = plain(kind)
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], [meta for meta in get_args(kind) if isinstance(meta, Meta)]
    return kind, []


def wrong_values(kind: Any) -> list[object]:
    """Values of another type, with a unit, and outside the limits."""
    inner, metas = bare(kind)
    if inner is bool:
        return ["maybe", 2.5, [True]]
    if inner in (int, float):
        outside = [bound for meta in metas for bound in outside_of(meta)]
        return ["60s", "1m", "5 minutes", "many", True, [60], *outside]
    if get_origin(inner) is tuple:
        return [{"a": 1}, 7, [7], [[]]]
    if get_origin(inner) is dict:
        return ["a", 7, ["a"], {"a": 7.5}]
    return [7, 2.5, True, ["a"], {"a": "b"}]


def outside_of(meta: Meta) -> list[float]:
    bounds = (meta.gt, meta.lt, None if meta.ge is None else meta.ge - 1)
    above = None if meta.le is None else meta.le + 1
    return [bound for bound in (*bounds, above) if bound is not None]


CASES = [(name, value) for name, kind in TYPES.items() for value in wrong_values(kind)]


@pytest.mark.parametrize(("name", "value"), CASES, ids=[f"{name}-{value}" for name, value in CASES])
def test_value_of_a_wrong_type_or_size_is_refused_by_name_place_and_what_is_allowed(name, value):
    with pytest.raises(SettingsError) as raised:
        load_settings({name: value}, {}, {})

    message = str(raised.value)
    assert message.startswith(f"setting {name!r} from argument {name}: ")
    assert "allowed: " in message
    assert "write " in message or "example: " in message
    if not isinstance(value, (list, dict)) and HOLDS.get(name) not in (Holds.KEY, Holds.PATTERN):
        assert repr(value) in message


RECORDS = {"queries": QuerySettings} | {kind.type_name(): kind for kind in RECEIVER_TYPES}
"""The records in the tables of settings."""


def in_table(record: str, **given: object) -> dict[str, object]:
    """The setting that has these fields in one of its tables."""
    if record == "queries":
        return {"queries": {"nightly*": given}}
    return {"receivers": [{"type": record, **given}]}


def types_of(record: str) -> dict[str, Any]:
    return get_type_hints(RECORDS[record], include_extras=True) if record else TYPES


PLACES_OF_VALUES = [
    (record, name)
    for record in ("", *RECORDS)
    for name in (RECORDS[record].__struct_fields__ if record else TYPES)
]
"""Each setting, and each field of a table."""


@pytest.mark.parametrize(("record", "name"), PLACES_OF_VALUES)
def test_number_of_any_length_is_refused_by_its_name(record, name):
    """Python makes no float of 10**400, and no text of 10**5000."""
    for digits in (400, 5000):
        for value in (10**digits, -(10**digits), [10**digits], {"a": 10**digits}):
            given = in_table(record, **{name: value}) if record else {name: value}

            message = problem(given, {}, {})
            assert message.startswith(f"setting {next(iter(given))!r} from argument ")
            assert "; allowed: " in message
            assert len(message) < 1000


NEEDED: dict[str, dict[str, object]] = {
    "email": {"host": "a", "sender": "a@b", "to": ["a@b"]},
    "alertmanager": {"urls": ["https://a"]},
}
"""The fields that a table must have, beside its name."""
REFUSED = [5, True, "", "x" * 600, "60s", "a,b", 99_999, -1, 2.5]
REFUSED += [["a"], [5], [[]], {"a": 5}, {"n*": 5}, {"1": 5}]
OTHERS = (" needs ", "cannot read ", "No such file", "not another receiver", "give ", "go together")
"""Of a setting that others must go with, and of a file that must be there."""


@pytest.mark.parametrize(("record", "name"), PLACES_OF_VALUES)
def test_example_in_an_answer_is_accepted_when_it_is_given(record, name):
    examples = set()
    for value in REFUSED:
        given = {name: value}
        if record:
            own = {} if record == "queries" else {"name": "a"} | NEEDED.get(record, {})
            given = in_table(record, **own | given)
        setting = next(iter(given))
        try:
            check_value(setting, given[setting], "file settings.toml")
        except SettingsError as error:
            message = str(error)
        else:
            continue
        if "the name " in message:
            continue  # It has no example.

        right = corrected(given, message)
        if repr(right) in examples:
            continue
        answer = problem(right, {}, {})
        assert answer == "" or any(words in answer for words in OTHERS), (message, right)
        examples.add(repr(right))
    assert examples


def corrected(given: dict[str, Any], message: str) -> dict[str, Any]:
    """The settings with the example of a message at the place that it names."""
    _, _, rest = message.partition("from file settings.toml: ")
    place = re.match(r"at (\S+): ", rest)
    path = place[1] if place else next(iter(given))
    *steps, last = [
        int(number) if number else key or name
        for number, key, name in re.findall(r"\[(\d+)\]|\['(.*?)'\]|(\w+)", path)
    ]
    written = re.split("; (?:write|example:) ", rest)[-1]
    is_entry = isinstance(last, int)
    values = tomllib.loads(f"value = {written}" if is_entry else written)
    assert list(values) == (["value"] if is_entry else [last])
    right = copy.deepcopy(given)
    part: Any = right
    for step in steps:
        part = part[step]
    (part[last],) = values.values()
    return right


@pytest.mark.parametrize(
    ("name", "value", "guess"),
    [
        ("data_loss_warning_ratio", 70, 0.7),
        ("data_loss_warning_ratio", "70%", 0.7),
        ("data_loss_warning_ratio", "0.5", 0.5),
        ("stall_floor_seconds", "5 minutes", 300),
        ("data_loss_warning_ratio", True, None),
        ("probe_interval_seconds", 120, None),
        ("probe_interval_seconds", "90%", None),
        ("stall_floor_seconds", True, None),
        ("stall_floor_seconds", "90%", None),
        ("stall_floor_seconds", -60, None),
        ("stall_floor_seconds", "9" * 400, None),
        ("stall_floor_seconds", "9" * 400 + " h", None),
        ("restart_budget", 300, None),
        ("http_port", 971900, None),
        ("http_port", "9719", 9719),
        ("expected_queries", "a, b", ["a", "b"]),
        ("expected_queries", "", None),
        ("expected_queries", ",", None),
        ("expected_queries", True, None),
        ("app_name", 7, "7"),
        ("app_name", True, None),
        ("complete_by", 7, None),
        ("webhook_url", 7, None),
        ("alertmanager_urls", "a", None),
    ],
)
def test_wrong_value_is_guessed_only_where_its_form_says_what_is_meant(name, value, guess):
    assert meant(TYPES[name], name, value) == guess


@pytest.mark.parametrize(
    "secret", ["R0123456789abcdefghijklmnopqrstu", "/whsec_0123456789abcdefghijklmn"]
)
def test_key_in_the_place_of_its_file_is_not_shown(secret):
    for name in SECRET_FILES:
        message = problem({name: secret}, {}, {})

        assert name in message
        assert secret not in message


PLACES = ["environment variable", "Spark conf", "file"]


def given_in(place: str, name: str, text: str, config: Any) -> tuple[str, tuple[Any, ...]]:
    """Where a setting is given, in words, and the sources that give it."""
    if place == "file":
        named = config(f"{name} = {text}")
        return f"file {named['QUERYPULSE_CONFIG']}", ({}, named, {})
    if place == "Spark conf":
        key = f"spark.querypulse.{name}"
        return f"Spark conf {key}", ({}, {}, {key: text})
    key = f"QUERYPULSE_{name.upper()}"
    return f"environment variable {key}", ({}, {key: text}, {})


@pytest.mark.parametrize("place", PLACES)
def test_wrong_value_is_refused_from_each_place(place, config):
    """A date is no value of any setting; as a text it may be a list of words, or a text."""
    shown = {}
    for name, kind in TYPES.items():
        if place == "file" or bare(kind)[0] in (bool, int, float, dict):
            where, sources = given_in(place, name, "1979-05-27", config)
            shown[name, f"setting {name!r} from {where}: "] = problem(*sources)

    missing = [
        (name, message)
        for (name, begin), message in shown.items()
        if not (message.startswith(begin) and "; allowed: " in message)
    ]
    assert len(shown) > 10
    assert missing == []


def problem(*sources: Any) -> str:
    """What is wrong with these settings; empty if nothing is."""
    try:
        loaded = load_settings(*sources)
        Components(loaded.settings, Guard())
    except SettingsError as error:
        return str(error)
    return "".join(loaded.problems)


@pytest.mark.parametrize("place", PLACES)
def test_misspelt_setting_gets_the_right_name_from_each_place(place, config):
    wrong = {}
    for name in TYPES:
        where, sources = given_in(place, f"{name}x", '"1"', config)
        expected = f"unknown setting '{name}x' from {where}; did you mean {name!r}?"
        if (message := problem(*sources)) != expected:
            wrong[name] = message

    assert wrong == {}


SECRET_FILES = [name for name, holds in HOLDS.items() if holds is Holds.SECRET_FILE]
WRONG_FILES = {
    "missing": "No such file or directory",
    "folder": "Is a directory",
    "empty": "is empty",
    "binary": "it is not UTF-8",
    "huge": "it has more than 65536 bytes",
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
@pytest.mark.parametrize("name", SECRET_FILES)
def test_file_that_cannot_be_a_secret_is_refused_with_its_path_and_why(name, wrong, folder):
    path = str(folder / wrong)
    message = problem({name: path}, {}, {})

    assert name in message
    assert path in message
    assert f"from argument {name})" in message
    # A setting that needs another one says so first.
    assert WRONG_FILES[wrong] in message or " needs " in message
