"""Our own connection sends what the job's client would send."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from querypulse.listener.connect.client import ConnectClient, ServerSilentError


class Rotating(DefaultChannelBuilder):
    """The job's channel builder, with a token for each request."""

    tokens = ()

    def metadata(self):
        token, *self.tokens = self.tokens
        return [("authorization", token)]


@pytest.fixture
def world():
    builder, sent = Rotating("sc://127.0.0.1:1"), []
    job = SimpleNamespace(_builder=builder, _session_id="s", _user_id="u")
    with closing(ConnectClient(SimpleNamespace(client=job))) as client:
        client._stub = SimpleNamespace(ExecutePlan=lambda request, **call: sent.append(call) or [])
        yield SimpleNamespace(builder=builder, client=client, sent=sent)


def test_each_request_has_the_metadata_that_the_jobs_builder_returns_then(world):
    world.builder.tokens = ["first", "second"]
    world.client.execute(world.client.pb2.Command())
    world.client.open_stream(world.client.pb2.Command())

    assert [call["metadata"] for call in world.sent] == [
        [("authorization", "first")],
        [("authorization", "second")],
    ]


def test_builder_that_has_no_token_now_is_no_answer(world):
    with pytest.raises(ServerSilentError, match="metadata: not enough values"):
        world.client.execute(world.client.pb2.Command())
    assert world.sent == []
