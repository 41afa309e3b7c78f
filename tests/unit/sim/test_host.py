"""A node: bandwidth, processor, timers, and what it does when it is busy."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message, Packet
from tests.support.plain_flood import Data, Ping, PlainFlood, Silent, protocol_of
from tests.support.sim_lab import MS, Lab, publish, scenario, schedule


def _burst(node: str, count: int, **more: object) -> dict[str, object]:
    return schedule(*(publish(node, 0, **more) for _ in range(count)))


def _wire_bytes(lab: Lab) -> int:
    row = lab.of("send")[0]
    return int(row["payload_bytes"] + row["header_bytes"])


# --- bandwidth ---


def test_a_packet_takes_its_bits_over_the_bandwidth_to_leave() -> None:
    lab = Lab(scenario(node={"bandwidth_mbps": 1.0}, link={"latency_ms": 5}))
    assert lab.of("send")[0]["payload_bytes"] == 64
    assert lab.travel_ms("n0", "n1")["n0#1"] == pytest.approx(5 + _wire_bytes(lab) * 8 / 1000)


def test_bandwidth_is_shared_by_all_links_of_a_node() -> None:
    lab = Lab(scenario(overlay={"kind": "star", "nodes": 4}, node={"bandwidth_mbps": 1.0}, link={"latency_ms": 5}))
    one = _wire_bytes(lab) * 8 / 1000
    arrivals = [lab.times_ms("receive", f"n{i}")[0] for i in (1, 2, 3)]
    assert arrivals == pytest.approx([5 + one, 5 + 2 * one, 5 + 3 * one])


def test_bandwidth_that_nobody_used_is_not_saved_up() -> None:
    lab = Lab(
        scenario(workload=[schedule(publish("n0", 0), publish("n0", 500))], node={"bandwidth_mbps": 1.0}),
    )
    assert len(set(lab.travel_ms("n0", "n1").values())) == 1


def test_lost_packets_take_their_share_of_the_bandwidth() -> None:
    lab = Lab(scenario(workload=[_burst("n0", 50)], node={"bandwidth_mbps": 1.0}, link={"latency_ms": 5, "loss": 0.5}))
    one = _wire_bytes(lab) * 8 / 1000
    arrived = {row["msg"]: row["time_ns"] / MS for row in lab.of("receive")}
    assert 10 < len(arrived) < 40
    for msg, time in arrived.items():
        assert time == pytest.approx(5 + int(msg.partition("#")[2]) * one)


def test_ingress_bandwidth_is_shared_by_all_who_send_to_a_node() -> None:
    lab = Lab(
        scenario(
            overlay={"kind": "star", "nodes": 4},
            workload=[schedule(*(publish(f"n{i}", 0) for i in (1, 2, 3)))],
            nodes=[{"nodes": ["n0"], "ingress_mbps": 1.0}],
            link={"latency_ms": 5},
        )
    )
    one = _wire_bytes(lab) * 8 / 1000
    assert lab.times_ms("receive", "n0") == pytest.approx([5 + one, 5 + 2 * one, 5 + 3 * one])


# --- processor ---


def test_outputs_leave_at_the_end_of_service() -> None:
    lab = Lab(
        scenario(
            overlay={"kind": "line", "nodes": 3},
            nodes=[{"nodes": ["n1"], "cpu": {"per_packet_us": 2000}}],
            link={"latency_ms": 5},
        )
    )
    assert lab.times_ms("receive", "n1") == [5]
    assert lab.times_ms("send", "n1") == [7]
    assert lab.times_ms("receive", "n2") == [12]


def test_a_node_serves_one_input_at_a_time_in_order_of_arrival() -> None:
    lab = Lab(
        scenario(workload=[_burst("n0", 4)], nodes=[{"nodes": ["n1"], "cpu": {"per_packet_us": 3000}}]),
    )
    assert lab.times_ms("receive", "n1") == [5, 8, 11, 14]
    assert lab.messages("receive", "n1") == ["n0#1", "n0#2", "n0#3", "n0#4"]


def test_every_part_of_the_cost_model_counts() -> None:
    cpu = {"per_packet_us": 1, "per_byte_us": 2, "per_send_us": 10, "per_sent_byte_us": 3, "per_delivery_us": 100}
    lab = Lab(scenario(overlay={"kind": "line", "nodes": 3}, nodes=[{"nodes": ["n1"], "cpu": cpu}]))
    size = _wire_bytes(lab)
    service_us = 1 + 2 * size + 10 + 3 * size + 100
    assert lab.times_ms("send", "n1")[0] - lab.times_ms("receive", "n1")[0] == pytest.approx(service_us / 1000)


def test_what_is_published_at_a_busy_node_waits_its_turn() -> None:
    cpu = {"per_packet_us": 4000}
    lab = Lab(scenario(workload=[_burst("n0", 3)], nodes=[{"nodes": ["n0"], "cpu": cpu}]))
    assert lab.times_ms("publish", "n0") == [0 + 4, 8, 12]  # The start of the machine is the first input.


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"node": {"bandwidth_mbps": -1}}, "node n0: bandwidth_mbps is -1.0"),
        ({"node": {"cpu": {"per_send_us": -1}}}, "node n0: per_send_us is -1.0"),
        ({"nodes": [{"nodes": ["n7"]}]}, "nodes[0].nodes: unknown node 'n7'"),
    ],
)
def test_an_impossible_node_is_named(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lab(scenario(**changes))
    assert str(caught.value).startswith(complaint)


# --- timers ---


class Alarms(Silent):
    """Notes every timer in the trace; subclasses set some."""

    durable = ()

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        out.note("join", {"timer": str(name)})


def _alarms(lab: Lab, node: str = "n0") -> list[tuple[float, str]]:
    return [(row["time_ns"] / MS, dict(row["info"])["timer"]) for row in lab.of("join", node)]


def test_a_timer_runs_out_after_its_delay() -> None:
    class Machine(Alarms):
        def on_start(self, out: Outbox) -> None:
            out.set_timer("late", 20 * MS)
            out.set_timer("soon", 10 * MS)

    assert _alarms(Lab(scenario(), protocol_of(Machine))) == [(10, "soon"), (20, "late")]


def test_setting_a_timer_anew_replaces_it() -> None:
    class Machine(Alarms):
        def on_start(self, out: Outbox) -> None:
            out.set_timer("alarm", 10 * MS)
            out.set_timer("alarm", 30 * MS)

    assert _alarms(Lab(scenario(), protocol_of(Machine))) == [(30, "alarm")]


def test_a_cancelled_timer_does_not_run_out() -> None:
    class Machine(Alarms):
        def on_start(self, out: Outbox) -> None:
            out.set_timer("alarm", 10 * MS)
            out.cancel_timer("alarm")
            out.cancel_timer("never set")

    assert _alarms(Lab(scenario(), protocol_of(Machine))) == []


def test_a_timer_that_waits_for_a_busy_node_can_still_be_cancelled() -> None:
    class Machine(Alarms):
        def on_publish(self, message: Message, out: Outbox) -> None:
            if message.number == 1:
                out.set_timer("alarm", 1 * MS)
            else:
                out.cancel_timer("alarm")

    busy = [{"nodes": ["n0"], "cpu": {"per_packet_us": 5000}}]
    two = [schedule(publish("n0", 0), publish("n0", 0.5))]
    assert _alarms(Lab(scenario(workload=two, nodes=busy), protocol_of(Machine))) == []
    one = [schedule(publish("n0", 0))]
    assert len(_alarms(Lab(scenario(workload=one, nodes=busy), protocol_of(Machine)))) == 1


def test_timers_do_not_outlive_a_crash() -> None:
    class Machine(Alarms):
        def on_start(self, out: Outbox) -> None:
            out.set_timer("first life" if not self.place.incarnation else "second life", 40 * MS)

    crash = {"kind": "crash", "node": "n0", "at_ms": 10, "recover_ms": 20, "state": "lost"}
    assert _alarms(Lab(scenario(fault=[crash]), protocol_of(Machine))) == [(60, "second life")]


def test_an_endless_background_timer_lets_the_run_come_to_rest() -> None:
    class Machine(Alarms):
        background = True

        def on_start(self, out: Outbox) -> None:
            out.set_timer("beat", 10 * MS, background=self.background)

        def on_timer(self, name: Hashable, out: Outbox) -> None:
            out.set_timer(name, 10 * MS, background=self.background)

    class Foreground(Machine):
        background = False

    assert Lab(scenario(), protocol_of(Machine)).manifest.drained is True
    assert Lab(scenario(drain_ms=500), protocol_of(Foreground)).manifest.drained is False


# --- effects ---


def test_sending_to_a_stranger_is_a_bug_of_the_machine() -> None:
    class Machine(Silent):
        def on_start(self, out: Outbox) -> None:
            out.send(NodeId("n2"), Ping(1))

    with pytest.raises(InvariantError, match="n0 sends to n2, which is not its neighbour"):
        Lab(scenario(overlay={"kind": "line", "nodes": 3}), protocol_of(Machine))


def test_control_packets_are_recorded_by_type_and_data_packets_by_message() -> None:
    class Machine(PlainFlood):
        def __init__(self, place: Place, options: object) -> None:
            super().__init__(place, options)
            self.pinged = False

        def on_publish(self, message: Message, out: Outbox) -> None:
            out.send(NodeId("n1"), Ping(300))
            super().on_publish(message, out)

        def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
            if isinstance(packet, Data):
                super().on_receive(peer, packet, out)

    ping, data = Lab(scenario(), protocol_of(Machine)).of("send")
    assert (ping["msg"], dict(ping["info"]), ping["payload_bytes"]) == (None, {"packet": "Ping"}, 0)
    # An array of two, the tag and a number of three bytes, behind a length of four.
    assert ping["header_bytes"] == 4 + 1 + 1 + 3
    assert (data["msg"], data["info"], data["payload_bytes"]) == ("n0#1", None, 64)
