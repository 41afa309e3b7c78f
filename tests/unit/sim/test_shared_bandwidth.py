"""One server for both directions of a node, sizes by a source's count, and publishers that wait for room."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.sim.links.world import World
from ordercast.sim.run import live
from tests.support.plain_flood import PLAIN_FLOOD, Data, Ping, PlainFlood, Silent, protocol_of
from tests.support.sim_lab import MS, Lab, publish, scenario, schedule

SHARED = {"bandwidth_mbps": 1.0, "shared": True}
AS_FAST_AS_IT_CAN = {"kind": "open", "rate_per_s": 1e6, "arrival": "regular", "publishers": ["n0"]}


def _one_ms(lab: Lab) -> float:
    """How long a server of 1 Mb/s takes for a packet."""
    row = lab.of("send")[0]
    return float(row["payload_bytes"] + row["header_bytes"]) * 8 / 1000


def test_a_packet_takes_the_server_of_its_sender_then_the_latency_then_the_server_of_its_receiver() -> None:
    lab = Lab(scenario(node=SHARED, link={"latency_ms": 5}))
    assert lab.travel_ms("n0", "n1")["n0#1"] == pytest.approx(_one_ms(lab) + 5 + _one_ms(lab))


def test_what_arrives_waits_behind_what_a_node_sends() -> None:
    """n1 begins to send three packets just before n0's arrives: they go first, and so it is the fourth."""
    steps = [publish("n0", 0), *(publish("n1", 5.1) for _ in range(3))]
    lab = Lab(scenario(workload=[schedule(*steps)], node=SHARED, link={"latency_ms": 5}))
    one = _one_ms(lab)
    assert 0 < one + 5 - 5.1 < one
    (receive,) = lab.times_ms("receive", "n1")
    assert receive == pytest.approx(5.1 + 4 * one)


def test_with_servers_of_their_own_the_directions_do_not_disturb_each_other() -> None:
    steps = [publish("n0", 0), *(publish("n1", 5.1) for _ in range(3))]
    apart = {"bandwidth_mbps": 1.0, "ingress_mbps": 1.0}
    lab = Lab(scenario(workload=[schedule(*steps)], node=apart, link={"latency_ms": 5}))
    assert lab.times_ms("receive", "n1") == pytest.approx([5 + 2 * _one_ms(lab)])


def test_a_relay_with_three_neighbours_passes_a_third_of_its_bandwidth_on() -> None:
    """One in and two out for each message: the rate at its leaves is a third of what its server can take."""
    star = {"kind": "edges", "edges": [["n0", "n1"], ["n1", "n2"], ["n1", "n3"]]}
    load = {**AS_FAST_AS_IT_CAN, "window": 64, "limit": 120}  # More would take a byte more to count.
    lab = Lab(scenario(overlay=star, workload=[load], node=SHARED, link={"latency_ms": 1}, duration_ms=2000))
    times = lab.times_ms("receive", "n3")
    assert len(times) == 120
    assert (times[110] - times[10]) / 100 == pytest.approx(3 * _one_ms(lab), rel=0.01)


# --- windows ---


def _on_their_way(lab: Lab) -> int:
    """The most packets from n0 that were sent and not yet handled."""
    events = [(row["time_ns"], -1) for row in lab.of("receive") if row["peer"] == "n0"]
    events += [(row["time_ns"], 1) for row in lab.of("send", "n0")]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("node", [{}, SHARED, {"cpu": {"per_packet_us": 300}}], ids=["plain", "shared", "busy"])
def test_a_publisher_never_has_more_packets_on_a_link_than_its_window(node: dict[str, Any]) -> None:
    load = {**AS_FAST_AS_IT_CAN, "window": 7, "limit": 200}
    lab = Lab(scenario(workload=[load], nodes=[{"nodes": ["n1"], **node}], link={"latency_ms": 1}))
    assert _on_their_way(lab) == 7
    assert len(lab.of("publish")) == 200
    assert lab.manifest.drained


def test_a_window_makes_a_publisher_wait_and_never_a_relay() -> None:
    """n1 is held up by n2, whose server is slow; n0 goes on, because n1 handles everything at once."""
    line = {"kind": "line", "nodes": 3}
    load = {**AS_FAST_AS_IT_CAN, "window": 2, "limit": 50}
    slow = [{"nodes": ["n2"], "bandwidth_mbps": 0.01, "shared": True}]
    lab = Lab(scenario(overlay=line, workload=[load], nodes=slow, link={"latency_ms": 1}))
    assert lab.times_ms("receive", "n1")[-1] < 50
    assert len(lab.of("send", "n1")) == 50


def test_packets_that_a_crash_takes_with_it_leave_room() -> None:
    load = {**AS_FAST_AS_IT_CAN, "window": 3, "limit": 60}
    crash = {"kind": "crash", "node": "n1", "at_ms": 20.5, "recover_ms": 30}
    for node in ({"cpu": {"per_packet_us": 900}}, SHARED):
        lab = Lab(scenario(workload=[load], node=node, fault=[crash], link={"latency_ms": 1}))
        assert len(lab.of("publish")) == 60
        assert lab.manifest.drained


def test_a_waiting_publisher_stops_with_its_load() -> None:
    load = {**AS_FAST_AS_IT_CAN, "window": 1, "stop_ms": 10}
    lab = Lab(scenario(workload=[load], link={"latency_ms": 4}))
    assert lab.times_ms("publish") == [0, 4, 8]


def test_a_closed_load_keeps_its_pace_and_its_bound() -> None:
    load = {"kind": "closed", "publishers": ["n0"], "outstanding": 2, "rate_per_s": 100}
    quick = Lab(scenario(workload=[load], link={"latency_ms": 5})).times_ms("publish")
    assert {round(b - a, 3) for a, b in pairwise(quick)} == {10.0}
    slow = Lab(scenario(workload=[load], link={"latency_ms": 50})).times_ms("publish")
    assert [round(b - a, 3) for a, b in pairwise(slow)][:4] == [10, 40, 10, 40]


# --- sizes ---


class Tally:
    last = 0


class Counting(PlainFlood):
    """Its source counts 1000 bytes for every copy, ten times as much for the second."""

    def __init__(self, place: Any, options: object) -> None:
        super().__init__(place, options)
        self.tally = Tally()

    def on_publish(self, message: Message, out: Outbox) -> None:
        for peer in self.neighbours:
            self.tally.last += 1000
            out.send(peer, Data(message))
        self.tally.last = 10_000


COUNTING = protocol_of(Counting, "counting")


def test_by_the_sources_count_a_copy_is_its_payload_and_what_the_machine_said_when_it_sent_it() -> None:
    """Also at a busy node, where it leaves later."""
    star = {"kind": "star", "nodes": 3}
    for more in ({}, {"cpu": {"per_packet_us": 1}}):
        asked = scenario(overlay=star, sizes="model", node={"bandwidth_mbps": 8.0, **more}, link={"latency_ms": 1})
        lab = Lab(asked, COUNTING)
        first, second = (lab.times_ms("receive", node)[0] for node in ("n1", "n2"))
        assert second - first == pytest.approx(2064 / 1000)
        assert first == pytest.approx(1 + 1064 / 1000, abs=0.01)


class Pinging(Silent):
    tally = Tally()

    def on_publish(self, message: Message, out: Outbox) -> None:
        out.send(self.place.neighbours[0], Ping(7))

    def on_receive(self, *_: object) -> None:
        pass


class CountedPing(Ping, frozen=True, tag=3):
    model_bytes = 500


class CountedPinging(Pinging):
    def on_publish(self, message: Message, out: Outbox) -> None:
        out.send(self.place.neighbours[0], CountedPing(7))


@pytest.mark.parametrize(("machine", "size"), [(Pinging, 7), (CountedPinging, 500)])
def test_packets_without_a_message_take_what_their_source_counts_or_else_their_length(machine: Any, size: int) -> None:
    lab = Lab(scenario(sizes="model", node={"bandwidth_mbps": 8.0}, link={"latency_ms": 1}), protocol_of(machine))
    assert lab.times_ms("receive", "n1") == pytest.approx([1 + size / 1000])


def test_a_node_counts_copies_and_other_packets_apart() -> None:
    world = World(scenario(overlay={"kind": "star", "nodes": 4}, node=SHARED), PLAIN_FLOOD, 0, None)
    live(world)
    hub = world.hosts[world.graph.nodes[0]]
    assert (hub.traffic.copies, hub.traffic.payload_bytes, hub.traffic.control) == (3, 3 * 64, 0)
    assert hub.egress is not None
    assert hub.egress is hub.ingress
    assert hub.egress.taken_bytes == hub.traffic.payload_bytes + hub.traffic.header_bytes
    pings = World(scenario(node=SHARED), protocol_of(Pinging), 0, None)
    live(pings)
    assert (pings.hosts[pings.graph.nodes[0]].traffic.control, pings.clock.now >= MS) == (1, True)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sizes": "model"}, "sizes: plain-flood does not count as a source does"),
        ({"node": {"shared": True}}, "node n0: shared needs bandwidth_mbps"),
        ({"node": {**SHARED, "ingress_mbps": 1.0}}, "node n0: shared needs bandwidth_mbps"),
        ({"workload": [{**AS_FAST_AS_IT_CAN, "window": -1}]}, "workload[0].window: -1 is not from 0 up"),
        ({"workload": [{"kind": "closed", "rate_per_s": -1}]}, "workload[0]: a closed load needs"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lab(scenario(**changes))
    assert str(caught.value).startswith(complaint)
