"""Datagrams under virtual time are lost, doubled and overtaken, and are the same again with the same seed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import CAST_BYTES, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.scenario.tables import Latency, Uniform
from ordercast.sim.clock import ns
from ordercast.sim.connections import CastModel, Processes, same_everywhere


class Say(Packet, frozen=True, tag=1):
    text: str


CODEC = Codec((Say,))


class Listener(ProcessMachine):
    """Writes down who cast what, and when."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.heard: list[tuple[int, str, str]] = []
        self.turns = 0

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        for packet in packets:
            assert isinstance(packet, Say)
            if packet.text == "nonsense":
                raise PeerError(peer.name, "talks nonsense")
            self.heard.append((self.wires.now_ns, peer.address, packet.text))

    def on_turn_end(self) -> None:
        self.turns += 1

    def texts(self) -> list[str]:
        return [text for _, _, text in self.heard]


def world_of(
    *names: str, latency: Latency = 5.0, casts: CastModel | None = None, codec: Codec | None = CODEC, seed: int = 1
) -> Processes:
    world = Processes(seed, same_everywhere(latency), codec=codec, casts=casts)
    for name in names:
        world.add(name, "node", lambda wires, _: Listener(wires), address=name)
        world.start(name)
    return world


def listener(world: Processes, name: str) -> Listener:
    machine = world.machine(name)
    assert isinstance(machine, Listener)
    return machine


def cast(world: Processes, source: str, target: str, *texts: str) -> None:
    life = world.life(source)
    assert life is not None
    for text in texts:
        life.cast(target, Say(text))


def run(world: Processes, milliseconds: float = 1000.0) -> None:
    world.clock.run_until(world.clock.now + ns(milliseconds))


def test_a_datagram_arrives_with_its_sender_and_where_to_answer() -> None:
    world = world_of("ann", "bob")
    cast(world, "ann", "bob", "hello")
    run(world)
    assert listener(world, "bob").heard == [(ns(5.0), "ann", "hello")]


@pytest.mark.parametrize("codec", [CODEC, None])
def test_losses_and_doubles_come_as_often_as_the_model_says(codec: Codec | None) -> None:
    world = world_of("ann", "bob", casts=CastModel(loss=0.2, duplicate=0.1), codec=codec)
    for number in range(5000):
        cast(world, "ann", "bob", str(number))
        run(world, 1.0)
    run(world)
    texts = listener(world, "bob").texts()
    assert 0.18 < 1 - len(set(texts)) / 5000 < 0.22
    assert 0.08 < (len(texts) - len(set(texts))) / len(set(texts)) < 0.12
    assert world.casts.counts["lost_chance"] == 5000 - len(set(texts))


def test_a_later_datagram_overtakes_where_latency_varies() -> None:
    world = world_of("ann", "bob", latency=Uniform(low_ms=1.0, high_ms=20.0))
    numbers = [str(number) for number in range(50)]
    cast(world, "ann", "bob", *numbers)
    run(world)
    texts = listener(world, "bob").texts()
    assert sorted(texts) == sorted(numbers)
    assert texts != numbers


def test_the_same_seed_makes_the_same_losses_and_another_seed_others() -> None:
    def heard(seed: int) -> list[tuple[int, str, str]]:
        model = CastModel(loss=0.3, duplicate=0.3)
        world = world_of("ann", "bob", latency=Uniform(low_ms=1.0, high_ms=9.0), casts=model, seed=seed)
        cast(world, "ann", "bob", *map(str, range(40)))
        run(world)
        return listener(world, "bob").heard

    assert heard(3) == heard(3)
    assert heard(3) != heard(4)


def test_what_one_process_does_not_cast_changes_nothing_for_the_others() -> None:
    def heard(also: Sequence[str]) -> list[tuple[int, str, str]]:
        world = world_of("ann", "bob", "cho", latency=Uniform(low_ms=1.0, high_ms=9.0), casts=CastModel(loss=0.4))
        for number in range(30):
            cast(world, "cho", "bob", *also)
            cast(world, "ann", "bob", str(number))
            run(world, 1.0)
        run(world)
        return [row for row in listener(world, "bob").heard if row[1] == "ann"]

    assert heard([]) == heard(["more", "and more"])


def test_what_arrives_at_one_instant_is_one_turn_of_its_receiver() -> None:
    world = world_of("ann", "bob", "cho")
    before = listener(world, "cho").turns
    cast(world, "ann", "cho", "one", "two")
    cast(world, "bob", "cho", "three")
    run(world)
    assert listener(world, "cho").texts() == ["one", "two", "three"]
    assert listener(world, "cho").turns == before + 1


def test_nobody_hears_what_is_cast_to_the_dead_across_a_partition_or_to_nowhere() -> None:
    world = world_of("ann", "bob", "cho")
    world.crash("bob")
    world.partition(["ann"], ["cho"])
    for target in ("bob", "cho", "nobody"):
        cast(world, "ann", target, "hello?")
    run(world)
    assert listener(world, "cho").heard == []
    assert world.casts.counts == {"sent": 3, "lost_partition": 1, "lost_nobody": 1, "lost_dead": 1}


def test_what_a_dead_process_had_cast_still_arrives() -> None:
    world = world_of("ann", "bob")
    cast(world, "ann", "bob", "my last")
    world.crash("ann")
    run(world)
    assert listener(world, "bob").texts() == ["my last"]


def test_a_process_that_stood_still_hears_the_datagrams_when_it_goes_on() -> None:
    world = world_of("ann", "bob")
    world.pause("bob")
    cast(world, "ann", "bob", "hello")
    run(world, 100.0)
    assert listener(world, "bob").heard == []
    world.resume("bob")
    assert listener(world, "bob").texts() == ["hello"]


def test_a_refused_datagram_is_counted_and_the_next_is_heard() -> None:
    world = world_of("ann", "bob")
    cast(world, "ann", "bob", "nonsense", "sense")
    run(world)
    assert listener(world, "bob").texts() == ["sense"]
    assert world.peer_errors == [("bob", "ann", "talks nonsense")]
    assert world.processes["bob"].counters["casts_refused"] == 1


def test_a_packet_over_the_limit_is_lost_and_counted() -> None:
    world = world_of("ann", "bob")
    cast(world, "ann", "bob", "x" * (CAST_BYTES + 1), "short")
    run(world)
    assert listener(world, "bob").texts() == ["short"]
    assert world.processes["ann"].counters["casts_too_long"] == 1


def test_long_datagrams_take_longer_where_bandwidth_is_limited() -> None:
    world = world_of("ann", "bob", casts=CastModel(bytes_per_ms=100.0))
    cast(world, "ann", "bob", "x" * 1000, "short")
    run(world)
    assert listener(world, "bob").texts() == ["short", "x" * 1000]
    (short, _, _), (long, _, _) = listener(world, "bob").heard
    assert long - short == pytest.approx(ns(10.0), rel=0.02)


def test_a_healed_network_loses_nothing() -> None:
    world = world_of("ann", "bob", casts=CastModel(loss=1.0))
    cast(world, "ann", "bob", "lost")
    world.casts.heal()
    cast(world, "ann", "bob", "found")
    run(world)
    assert listener(world, "bob").texts() == ["found"]
