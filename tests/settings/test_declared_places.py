"""What the settings say that queries read and write."""

from __future__ import annotations

import pytest

from querypulse.listener.state.flow import PATH, TABLE, TOPIC, Declared, Place
from querypulse.settings import wiring
from querypulse.settings.settings import QuerySettings, Settings, SettingsError


def declared(text, side="writes", pattern="bronze"):
    own = QuerySettings(**{side: (text,)})
    return wiring.policy(Settings(queries={pattern: own})).declared


def test_place_is_declared():
    places = [
        ("delta:/lake/bronze", Place(PATH, "/lake/bronze")),
        ("delta:s3a://lake/bronze/", Place(PATH, "/bronze", ("s3://lake",))),
        ("abfs://box@lake/bronze", Place(PATH, "/bronze", ("abfss://box@lake",))),
        ("/lake/bronze", Place(PATH, "/lake/bronze")),
        ("file:/lake/bronze", Place(PATH, "/lake/bronze", ("file://",))),
        ("kafka:orders", Place(TOPIC, "orders")),
        ("kafka://b2:9092,b1:9092/orders", Place(TOPIC, "orders", ("b1:9092", "b2:9092"))),
        ("iceberg:local.db.orders", Place(TABLE, "local.db.orders")),
        ("table:db.orders", Place(TABLE, "db.orders")),
    ]

    for text, place in places:
        assert declared(text) == (Declared("bronze", writes=(place,)),)
        assert declared(text, "reads") == (Declared("bronze", reads=(place,)),)


def test_declaration_that_could_never_match_is_refused():
    texts = [
        "",
        " ",
        "bronze",
        "lake/bronze",
        "delta:",
        "delta:lake/bronze",
        "dleta:bronze",
        "dleta:/lake/bronze",
        "kafka:",
        "kafka://b:9092/",
        "kafka:///orders",
        "kafka:a/b",
        "iceberg:orders",
        "table:a..b",
        "s3://",
    ]
    messages = {}
    for text in texts:
        with pytest.raises(SettingsError) as refused:
            declared(text)
        messages[text] = str(refused.value)
    start = "setting 'queries', 'writes' of 'bronze': "

    assert [
        message
        for text, message in messages.items()
        if f"{start}{text!r} could never match" not in message
        or "'delta:/lake/bronze'" not in message
    ] == []


def test_empty_name_pattern_is_refused():
    with pytest.raises(SettingsError, match="an empty name pattern matches no query"):
        declared("kafka:orders", pattern="")
