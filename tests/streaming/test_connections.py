"""One connection serves a process of Spark, and is closed once when nobody has used it for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from ordercast.api import ConnectError
from ordercast.streaming import connections
from ordercast.streaming.options import Connection

HERE = Connection(brokers=("127.0.0.1:1",))
PATIENCE_S = 10.0


class _Client:
    """What `connections` needs of a client."""

    def __init__(self) -> None:
        self.ended = False
        self.closed = 0
        self.fails: Exception | None = None

    def close(self) -> None:
        self.closed += 1
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[_Client]]:
    """The clients that were connected; they are idle soon."""
    clients: list[_Client] = []

    def connect(_: Connection) -> _Client:
        clients.append(_Client())
        return clients[-1]

    monkeypatch.setattr(connections, "_connect", connect)
    monkeypatch.setattr(connections, "IDLE_S", 0.05)
    yield clients
    _all_timers_have_run()


def _all_timers_have_run() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(PATIENCE_S)


def test_those_who_use_a_connection_at_the_same_time_share_it_and_it_is_closed_once(made: list[_Client]) -> None:
    with connections.client_of(HERE) as first, connections.client_of(HERE) as second:
        assert first is second
    _all_timers_have_run()
    assert [client.closed for client in made] == [1]


def test_a_connection_that_is_used_again_stays_open(made: list[_Client]) -> None:
    with connections.client_of(HERE):
        pass
    with connections.client_of(HERE):
        _all_timers_have_run()
        assert [client.closed for client in made] == [0]
    _all_timers_have_run()
    assert [client.closed for client in made] == [1]


def test_a_session_that_has_ended_is_replaced_and_closed_by_whoever_used_it_last(made: list[_Client]) -> None:
    with connections.client_of(HERE):
        made[0].ended = True
        with connections.client_of(HERE), connections.client_of(HERE):
            assert len(made) == 2
        _all_timers_have_run()
        assert [client.closed for client in made] == [0, 1]
    _all_timers_have_run()
    assert [client.closed for client in made] == [1, 1]


def test_an_idle_connection_that_cannot_be_closed_in_order_leaves_a_line(
    made: list[_Client], caplog: pytest.LogCaptureFixture
) -> None:
    """And no traceback of a thread: nobody waits for it."""
    with caplog.at_level(logging.WARNING, "ordercast.streaming"):
        with connections.client_of(HERE):
            made[0].fails = ConnectError("no broker within 10 s")
        _all_timers_have_run()
    assert [record.getMessage() for record in caplog.records] == [
        "an idle connection to the brokers was not closed in order: no broker within 10 s"
    ]
