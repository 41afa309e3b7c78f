"""The page of the live demo: orders come from it alone, and only those that make sense are obeyed."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ordercast.experiments.demo.live import LiveControl, LiveOrder
from ordercast.experiments.demo.run import _refusal
from ordercast.experiments.demo.setting import live_play
from ordercast.experiments.ginger.setting import BROKERS

DOORS = {"b0": "127.0.0.1:1", "b1": "127.0.0.1:2"}


@pytest.fixture
def control() -> Iterator[LiveControl]:
    with LiveControl(DOORS) as opened:
        yield opened


def ask(control: LiveControl, method: str, path: str, **fields: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(control.host, timeout=20)
    connection.request(method, path, headers=fields)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_the_page_knows_whom_to_watch_and_its_secret(control: LiveControl) -> None:
    status, page = ask(control, "GET", "/")
    assert status == 200
    assert control.secret in page
    assert "http://127.0.0.1:2" in page


def test_an_order_of_the_page_waits_to_be_done(control: LiveControl) -> None:
    assert ask(control, "POST", "/kill/b1", **{"X-Ordercast-Demo": control.secret})[0] == 202
    assert control.orders.get_nowait() == LiveOrder("kill", "b1")


@pytest.mark.parametrize(
    ("path", "secret", "host", "status"),
    [
        ("/kill/b1", "guessed", None, 403),
        ("/kill/b9", None, None, 404),
        ("/burn/b1", None, None, 404),
        ("/kill/b1/b0", None, None, 404),
        ("/kill/b1", None, "evil.example", 403),
    ],
)
def test_nobody_else_gives_orders(
    control: LiveControl, path: str, secret: str | None, host: str | None, status: int
) -> None:
    fields = {"X-Ordercast-Demo": secret or control.secret, **({"Host": host} if host else {})}
    assert ask(control, "POST", path, **fields)[0] == status
    assert control.orders.empty()


def test_another_host_name_does_not_get_the_secret(control: LiveControl) -> None:
    status, said = ask(control, "GET", "/", Host="evil.example")
    assert (status, control.secret in said) == (403, False)


def test_orders_beyond_what_can_be_done_are_refused(control: LiveControl) -> None:
    codes = [ask(control, "POST", "/kill/b0", **{"X-Ordercast-Demo": control.secret})[0] for _ in range(3)]
    assert codes == [202, 202, 429]


def test_a_majority_is_never_killed_and_the_dead_not_twice() -> None:
    stage = SimpleNamespace(killed=set())
    for broker in BROKERS[:3]:
        assert _refusal(stage, LiveOrder("kill", broker)) == ""  # type: ignore[arg-type]
        stage.killed.add(broker)
    assert "majority" in _refusal(stage, LiveOrder("kill", BROKERS[4]))  # type: ignore[arg-type]
    assert "dead already" in _refusal(stage, LiveOrder("kill", BROKERS[0]))  # type: ignore[arg-type]
    assert _refusal(stage, LiveOrder("restart", BROKERS[0])) == ""  # type: ignore[arg-type]
    assert "it runs" in _refusal(stage, LiveOrder("restart", BROKERS[5]))  # type: ignore[arg-type]


def test_nobody_is_killed_by_the_plan_of_a_live_demo() -> None:
    assert live_play(0, 0.5).acts == ()
    assert live_play(0, 0.5).operations == 600
