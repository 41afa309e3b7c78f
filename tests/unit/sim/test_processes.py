"""The promises of connections under virtual time: order, ends, deaths, restarts, pauses, partitions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.scenario.tables import Uniform
from ordercast.sim.clock import ns
from ordercast.sim.connections import Processes, Timing, both_ways, by_region, drawn_pairs, same_everywhere
from tests.support.toy_processes import WORDS, Toy, Word

FAR = ns(60_000)


def world_of(*names: str, seed: int = 1, latency: float | Uniform = 10.0, timing: Timing | None = None) -> Processes:
    world = Processes(seed, same_everywhere(latency), timing, codec=WORDS)
    for name in names:
        world.add(name, "broker", Toy, address=f"{name}:1")
        world.start(name)
    return world


def toy(world: Processes, name: str) -> Toy:
    machine = world.machine(name)
    assert isinstance(machine, Toy)
    return machine


def connect(world: Processes, one: str, other: str) -> Connection:
    connection = toy(world, one).wires.open(f"{other}:1")
    world.clock.run_until(world.clock.now + ns(100))
    return connection


def say(world: Processes, name: str, connection: Connection, *numbers: int) -> None:
    for number in numbers:
        toy(world, name).wires.send(connection, Word(number))


def test_what_is_sent_before_the_dial_is_answered_arrives_after_it_is() -> None:
    world = world_of("a", "b")
    connection = toy(world, "a").wires.open("b:1")
    say(world, "a", connection, 1, 2)
    world.clock.run_until(FAR)
    assert toy(world, "a").log[1:] == [("opened", ns(20), 1, "b", 0)]
    assert toy(world, "b").log[1:] == [
        ("opened", ns(10), 1, "a", 0), ("packet", ns(30), 1, 1), ("packet", ns(30), 1, 2),
    ]  # fmt: skip


def test_what_was_said_before_a_close_arrives_even_if_the_dial_was_not_answered_yet() -> None:
    world = world_of("a", "b")
    wires = toy(world, "a").wires
    connection = wires.open("b:1")
    say(world, "a", connection, 7)
    wires.close(connection, "done")
    world.clock.run_until(FAR)
    assert toy(world, "b").kinds() == ["start", "opened", "packet", "closed"]
    assert toy(world, "b").log[-1][3] is False
    assert toy(world, "a").kinds() == ["start"]


def test_a_dial_without_interest_is_never_heard() -> None:
    world = world_of("a", "b")
    wires = toy(world, "a").wires
    wires.close(wires.open("b:1"))
    world.clock.run_until(FAR)
    assert toy(world, "b").kinds() == ["start"]


def test_packets_keep_their_order_whatever_their_latencies() -> None:
    for seed in range(20):
        world = world_of("a", "b", seed=seed, latency=Uniform(low_ms=1, high_ms=80))
        connection = connect(world, "a", "b")
        world.clock.run_until(ns(1000))
        for number in range(30):
            world.clock.run_until(ns(1000 + number))
            say(world, "a", connection, number)
        world.clock.run_until(FAR)
        assert toy(world, "b").numbers() == list(range(30))


def test_of_a_dead_process_a_prefix_arrives_and_then_the_end_and_then_nothing() -> None:
    survivors = set()
    for seed in range(40):
        world = world_of("a", "b", seed=seed, timing=Timing(detection_ms=5.0))
        connection = connect(world, "a", "b")
        say(world, "a", connection, *range(6))
        world.crash("a")
        world.clock.run_until(FAR)
        arrived = toy(world, "b").numbers()
        assert arrived == list(range(len(arrived)))
        assert toy(world, "b").log[-1] == ("closed", ns(115), 1, True)
        survivors.add(len(arrived))
    assert {0, 6} < survivors


def test_each_process_may_take_a_time_of_its_own_to_notice_a_death() -> None:
    world = world_of("a", "b", "c", timing=Timing(detection_ms=5.0, detection={"c": 200.0}))
    connect(world, "b", "a")
    connect(world, "c", "a")
    died = world.clock.now
    world.crash("a")
    world.clock.run_until(FAR)
    assert [toy(world, name).log[-1][:2] for name in "bc"] == [("closed", died + ns(15)), ("closed", died + ns(210))]


def test_a_latency_that_changes_counts_for_open_connections_one_way_and_overtakes_nothing() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    for number, latency in enumerate((None, 80.0, 1.0, None)):
        world.set_latency("a", "b", latency)
        say(world, "a", connection, number)
        toy(world, "b").wires.send(1, Word(10 + number))
        world.clock.run_until(world.clock.now + ns(20))
    world.clock.run_until(FAR)
    begin = ns(100)
    times = [(entry[3], entry[1] - begin) for entry in toy(world, "b").log if entry[0] == "packet"]
    assert times == [(0, ns(10)), (1, ns(100)), (2, ns(100)), (3, ns(100))]
    back = [entry[1] - begin for entry in toy(world, "a").log if entry[0] == "packet"]
    assert back == [ns(10), ns(30), ns(50), ns(70)]


def test_a_dial_to_a_dead_process_fails_after_a_round_trip() -> None:
    world = world_of("a", "b")
    world.crash("b")
    toy(world, "a").wires.open("b:1")
    toy(world, "a").wires.open("nowhere")
    world.clock.run_until(FAR)
    assert toy(world, "a").log[1:] == [("closed", ns(1), 2, True), ("closed", ns(20), 1, True)]


def test_nothing_of_an_earlier_life_reaches_the_next() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    toy(world, "b").wires.set_timer("old", ns(5))
    say(world, "a", connection, 1)
    world.crash("b")
    with pytest.raises(InvariantError):
        world.start("a")
    world.start("b")
    world.clock.run_until(FAR)
    assert toy(world, "b").kinds() == ["start"]
    assert toy(world, "b").peer.life == 1
    assert toy(world, "a").log[-1][0] == "closed"
    connect(world, "a", "b")
    assert toy(world, "a").log[-1] == ("opened", FAR + ns(20), 2, "b", 1)


def test_a_clean_close_delivers_everything_and_is_told_once() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    say(world, "a", connection, 1, 2)
    toy(world, "a").wires.close(connection)
    say(world, "a", connection, 3)
    world.clock.run_until(FAR)
    assert toy(world, "b").numbers() == [1, 2]
    assert [entry[3] for entry in toy(world, "b").log if entry[0] == "closed"] == [False]
    assert "closed" not in toy(world, "a").kinds()


def test_a_cut_connection_ends_at_both_ends_and_takes_nothing_more() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    assert world.cut("b", "a") == 1
    say(world, "a", connection, 1)
    world.clock.run_until(FAR)
    assert toy(world, "b").numbers() == []
    assert [toy(world, name).log[-1][0::3] for name in "ab"] == [("closed", True)] * 2
    connect(world, "a", "b")
    assert toy(world, "a").log[-1][0] == "opened"


def test_a_timer_replaces_its_namesake_and_a_background_timer_does_not_delay_the_rest() -> None:
    world = world_of("a")
    wires = toy(world, "a").wires
    wires.set_timer("x", ns(5))
    wires.set_timer("x", ns(9))
    wires.set_timer("gone", ns(3))
    wires.cancel_timer("gone")
    wires.set_timer("beat", ns(50), background=True)
    world.clock.run_to_rest(FAR)
    assert toy(world, "a").log[1:] == [("timer", ns(9), "x")]
    assert world.clock.at_rest
    world.clock.run_until(FAR)
    assert toy(world, "a").log[-1] == ("timer", ns(50), "beat")


def test_a_process_that_stands_still_handles_everything_when_it_goes_on() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    world.pause("b")
    toy(world, "b").wires.set_timer("t", ns(1))
    say(world, "a", connection, 1, 2)
    world.clock.run_until(ns(1000))
    assert toy(world, "b").numbers() == []
    world.resume("b")
    assert toy(world, "b").kinds()[-3:] == ["timer", "packet", "packet"]
    assert toy(world, "b").log[-1][1] == ns(1000)


def test_who_is_silent_for_too_long_loses_its_connections() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    world.pause("b")
    say(world, "a", connection, 1)
    world.clock.run_until(ns(5000))
    assert toy(world, "a").log[-1] == ("closed", ns(2100), connection, True)
    toy(world, "a").wires.open("b:1")
    world.clock.run_until(ns(8000))
    assert toy(world, "a").log[-1] == ("closed", ns(7010), 2, True)
    world.resume("b")
    assert toy(world, "b").kinds()[-2:] == ["packet", "closed"]


def test_a_partition_that_heals_in_time_only_delays() -> None:
    world = world_of("a", "b", "c")
    connection = connect(world, "a", "b")
    aside = connect(world, "a", "c")
    number = world.partition("a", "b")
    say(world, "a", connection, 1)
    say(world, "a", aside, 2)
    late = toy(world, "b").wires.open("a:1")
    world.clock.run_until(ns(1000))
    assert toy(world, "b").numbers() == []
    assert toy(world, "c").numbers() == [2]
    world.heal(number)
    world.clock.run_until(FAR)
    assert toy(world, "b").numbers() == [1]
    assert ("opened", ns(1020), late, "a", 0) in toy(world, "b").log


def test_a_partition_that_lasts_breaks_connections_at_both_ends_at_different_times() -> None:
    world = world_of("a", "b", timing=Timing(silence_ms=Uniform(low_ms=500, high_ms=2000)))
    connection = connect(world, "a", "b")
    number = world.partition(["a"], ["b"])
    say(world, "a", connection, 1)
    world.clock.run_until(ns(5000))
    ends = [toy(world, name).log[-1] for name in "ab"]
    assert [end[0::3] for end in ends] == [("closed", True)] * 2
    assert ends[0][1] != ends[1][1]
    world.heal(number)
    world.clock.run_until(FAR)
    assert toy(world, "b").numbers() == []


def test_the_end_that_had_not_given_up_learns_after_the_partition() -> None:
    told = 0
    for seed in range(30):
        world = world_of("a", "b", seed=seed, timing=Timing(silence_ms=Uniform(low_ms=500, high_ms=2000)))
        connect(world, "a", "b")
        number = world.partition(["a"], ["b"])
        world.clock.run_until(ns(1200))
        before = [name for name in "ab" if toy(world, name).log[-1][0] == "closed"]
        world.heal(number)
        world.clock.run_until(FAR)
        after = [name for name in "ab" if toy(world, name).log[-1][0] == "closed"]
        assert after == (["a", "b"] if before else [])
        told += len(before) == 1
    assert told


def test_a_death_beyond_a_partition_shows_only_by_silence() -> None:
    world = world_of("a", "b")
    connect(world, "a", "b")
    world.partition(["a"], ["b"])
    world.crash("b")
    world.clock.run_until(FAR)
    assert toy(world, "a").log[-1] == ("closed", ns(2100), 1, True)


def test_a_packet_that_must_not_be_sent_ends_its_connection() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")

    def blame(_toy: Toy, _connection: Connection, _packet: Packet) -> None:
        raise PeerError("a", "said a word")

    toy(world, "b").reacts = blame
    say(world, "a", connection, 1)
    world.clock.run_until(FAR)
    assert world.peer_errors == [("b", "a", "said a word")]
    assert toy(world, "a").log[-1][0::3] == ("closed", False)
    assert toy(world, "b").log[-1][0::3] == ("closed", False)


def test_what_a_machine_changes_after_sending_is_not_seen_by_the_receiver() -> None:
    world = world_of("a", "b")
    connection = connect(world, "a", "b")
    heard: list[dict[str, int]] = []
    toy(world, "b").reacts = lambda _toy, _connection, packet: heard.append(packet.seen)  # type: ignore[attr-defined]
    seen = {"x": 1}
    toy(world, "a").wires.send(connection, Word(1, seen))
    seen["x"] = 2
    world.clock.run_until(FAR)
    assert heard == [{"x": 1}]


def test_pairs_then_regions_then_the_default_say_how_far_it_is() -> None:
    regions = both_ways({("NA", "EU"): 115.0, ("NA", "NA"): 40.0})
    latency = by_region({"a": "EU", "b": "NA", "c": "NA"}, regions, both_ways({("b", "c"): 25.0}))
    assert [latency("a", "b"), latency("c", "a"), latency("c", "b"), latency("b", "b"), latency("a", "x")] == [
        115.0, 115.0, 25.0, 40.0, 1.0,
    ]  # fmt: skip
    drawn = drawn_pairs(3, 1, 600)
    assert drawn("a", "b") == drawn("b", "a") != drawn("a", "c")


SCRIPT = """
from tests.unit.sim.test_processes import *
timing = Timing(detection_ms=Uniform(low_ms=1, high_ms=90))
world = world_of("a", "b", "c", seed=5, latency=Uniform(low_ms=1, high_ms=50), timing=timing)
def answer(toy, connection, packet):
    if packet.number < 60:
        toy.wires.send(connection, Word(packet.number + 1))
for name in "abc":
    toy(world, name).reacts = answer
for one, other in ("ab", "bc", "ca"):
    say(world, one, toy(world, one).wires.open(other + ":1"), *range(8))
world.clock.run_until(ns(300))
number = world.partition("a", "bc")
world.clock.run_until(ns(700))
world.heal(number)
world.crash("b")
world.start("b")
world.clock.run_until(FAR)
print([toy(world, name).log for name in "abc"])
"""


def test_the_same_seed_gives_the_same_run_under_every_hash_seed() -> None:
    root = Path(__file__).parents[3]
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=root, check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(runs[0]) > 2000
