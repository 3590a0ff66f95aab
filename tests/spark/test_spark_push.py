"""A real driver pushes its metrics, shows that in ``/status``, and leaves nothing behind."""

from __future__ import annotations

import pytest
from support.http_double import HttpDouble
from support.queries import commits, rate, start, until

from querypulse.exporter import push

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_driver_pushes_and_its_close_deletes(spark, watch, monkeypatch):
    monkeypatch.setattr(push, "PUSH_SECONDS", 1.0)
    with HttpDouble() as double:
        sidecar = watch(pushgateway_url=double.url, otlp_endpoint=double.url)
        start(rate(spark), "pushed")
        commits(sidecar, "pushed")
        until(lambda: any(b'query="pushed"' in sent.body for sent in double.requests), "a push")
        pushes = until(lambda: sidecar.snapshot().monitor.pushes, "the pushes in the status")
        sidecar.close()
        methods = [sent.method for sent in double.requests]

    assert set(pushes) == {"pushgateway", "otlp"}
    assert not any(target.problem for target in pushes.values())
    assert {"PUT", "POST", "DELETE"} == set(methods)
    assert methods.count("DELETE") == 1
