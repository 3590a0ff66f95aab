"""Inputs that fuzzing has found, by target: each broke a promise once, ours or the target's own."""

from __future__ import annotations

DEEP = b"[" * 100_000

FOUND = (
    ("events", "nested too deeply for Python's stack", b'P{"progress":{"x":' + DEEP),
    ("events", "an unknown field nested too deeply", b'I{"id":"i","runId":"r","x":' + DEEP),
    ("http", "white space that is not ASCII before the path", b"GET\xa0/ HTTP/1.1\r\n\r\n"),
    ("settings", "a variable that is not UTF-8", b"EAPP_NAME=a\xff"),
    ("settings", "a list in a variable that is not UTF-8", b'ERECEIVERS=[{"type": "webhoo\xff\xff'),
    ("settings", "an unknown variable that is not UTF-8", b"E\xff=1"),
    ("settings", "TOML nested too deeply", b"Tqueries = " + DEEP),
    ("settings", "a number of thousands of digits in TOML", b"Thttp_port = " + b"9" * 5000),
    ("settings", "a number of thousands of digits in a variable", b"EQUERIES=" + b"9" * 5000),
)
