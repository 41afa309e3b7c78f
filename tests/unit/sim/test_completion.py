"""Clients and servers in a run: who publishes, to whom, and when a closed loop goes on."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.overlay.graphs import build_graph
from ordercast.protocols import lookup
from ordercast.scenario.model import Servers
from tests.support.sim_lab import Lab, scenario


def closed(**changes: Any) -> dict[str, Any]:
    return {"kind": "closed", "publishers": "clients", "until": "completed", "destinations": 2, **changes}


def run(workload: dict[str, Any], *, clients: int = 2, protocol: str = "delporte-fauconnier", **changes: Any) -> Lab:
    overlay = {"kind": "servers", "nodes": 3, "clients": clients}
    asked = scenario(overlay=overlay, workload=[workload], duration_ms=100, **changes)
    return Lab(asked, lookup(protocol))


def test_servers_form_a_clique_and_clients_reach_all_of_them_but_not_each_other() -> None:
    graph = build_graph(Servers(nodes=3, clients=2), 0)
    assert graph.nodes == ("n0", "n1", "n2", "c0", "c1")
    assert (graph.servers, graph.clients) == (("n0", "n1", "n2"), ("c0", "c1"))
    assert graph.neighbours["n1"] == ("n0", "n2", "c0", "c1")
    assert graph.neighbours["c1"] == ("n0", "n1", "n2")


def test_a_negative_number_of_clients_is_named() -> None:
    with pytest.raises(UsageError, match=r"overlay.clients: -1 is negative"):
        build_graph(Servers(nodes=3, clients=-1), 0)


def test_clients_publish_and_servers_deliver() -> None:
    lab = run(closed(limit=20))
    assert {row["node"] for row in lab.of("publish")} == {"c0", "c1"}
    assert {row["node"] for row in lab.of("deliver")} <= {"n0", "n1", "n2"}
    assert all(len(row["dst"]) == 2 and set(row["dst"]) <= {"n0", "n1", "n2"} for row in lab.of("publish"))


def test_everyone_publishes_where_there_are_no_clients() -> None:
    lab = run(closed(limit=20), clients=0)
    assert {row["node"] for row in lab.of("publish")} == {"n0", "n1", "n2"}


def test_a_client_goes_on_when_it_has_its_answer() -> None:
    """5 ms each to the lowest destination, to the highest, and back with the answer."""
    lab = run(closed(), clients=1)
    times = lab.times_ms("publish", "c0")
    assert times == [15.0 * i for i in range(7)]


def test_a_client_waits_for_all_answers_of_skeen() -> None:
    """Proposals cross in one step, so the answers are back after three."""
    lab = run(closed(), clients=1, protocol="skeen")
    assert lab.times_ms("publish", "c0") == [15.0 * i for i in range(7)]
    assert len(lab.of("deliver")) == 2 * len(lab.of("publish"))


def test_a_message_that_is_done_at_once_does_not_stop_time() -> None:
    alone = closed(to={"kind": "explicit", "sets": [["n0"]]}, publishers=["n0"], destinations=0, limit=10)
    times = run(alone).times_ms("publish", "n0")
    assert len(set(times)) == 10
    assert run(alone | {"think_ms": 10}).times_ms("publish", "n0") == [10.0 * i for i in range(10)]


def test_two_ways_of_choosing_destinations_are_one_too_many() -> None:
    with pytest.raises(UsageError, match=r"workload\[0\]: give either destinations or to"):
        run(closed(to={"kind": "any"}))


def test_more_destinations_than_servers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"workload\[0\].destinations: 4 is not from 0 to 3"):
        run(closed(destinations=4))


def test_the_answer_ends_the_wait_before_everyone_has_delivered() -> None:
    """The lower destination delivers when it hears of the end, long after the client has its answer."""
    slow = {"links": [{"between": ["n2", "n0"], "latency_ms": 50.0, "one_way": True}], "options": {"delivery": "end"}}
    only = {"to": {"kind": "explicit", "sets": [["n0", "n2"]]}, "limit": 2, "destinations": 0}
    lab = run(closed(**only), clients=1, **slow)
    assert lab.times_ms("publish", "c0") == [0.0, 15.0]
    assert lab.times_ms("deliver", "n0")[0] == 60.0
