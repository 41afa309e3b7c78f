"""Replicated objects on real datagrams: everybody sees the same, causes come first, coordinators come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ordercast import objects
from ordercast.core.errors import UsageError
from ordercast.net.host import Carrier
from ordercast.net.turn_ports import lasting_door
from ordercast.net.wire.settings import WireSettings
from ordercast.objects import Node
from ordercast.protocols.cluster.options import ClusterOptions
from tests.support.loop import run_async, until

QUICK = ClusterOptions(round_ms=10.0, lease_ms=400.0, claim_ms=100.0, catch_up_ms=200.0, join_ms=200.0, entries=4)
WAIT_S = 20.0


@asynccontextmanager
async def group(
    *names: str, options: ClusterOptions = QUICK, carrier: Carrier = "udp", loss: float = 0.0
) -> AsyncIterator[list[Node]]:
    """Nodes that know each other; the first three manage entries."""
    directory = TemporaryDirectory()
    doors = [lasting_door() for _ in names]
    addresses = [f"127.0.0.1:{door.getsockname()[1]}" for door in doors]
    nodes: list[Node] = []
    for name, door, address in zip(names, doors, addresses, strict=True):
        door.close()
        data = Path(directory.name) / name if len(nodes) < 3 else None
        nodes.append(
            await objects.start(
                name, listen=address, contacts=[other for other in addresses if other != address],
                managers=addresses[:3], token="secret", carrier=carrier, options=options,
                data=data, settings=WireSettings(datagram_loss=loss),
            )
        )  # fmt: skip
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
        directory.cleanup()
        assert [node.failure for node in nodes] == [None] * len(nodes)


@pytest.mark.parametrize(("carrier", "loss"), [("udp", 0.0), ("udp", 0.1), ("tcp", 0.0)])
def test_what_one_writes_all_see(carrier: Carrier, loss: float) -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho", "dan", carrier=carrier, loss=loss) as nodes:
            rooms = [await node.join("room") for node in nodes]
            await rooms[0].register("door").set("open")
            await rooms[1].counter("visits").add(2)
            await rooms[2].counter("visits").add(3)
            await rooms[3].growing_set("guests").add("dan")
            for room in rooms:
                await room.wait_until(lambda room=room: room.counter("visits").value == 5, WAIT_S)  # type: ignore[misc]
                await room.wait_until(
                    lambda room=room: room.growing_set("guests").value == {"dan"}, WAIT_S  # type: ignore[misc]
                )  # fmt: skip
                await room.wait_until(lambda room=room: room.register("door").value == "open", WAIT_S)  # type: ignore[misc]
                assert room.objects() == ["door", "guests", "visits"]

    run_async(main)


def test_an_ordered_observer_never_sees_an_effect_before_its_cause_and_one_without_order_sees_everything() -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho", "dan", loss=0.2) as nodes:
            ann, bob, cho = [await node.join("room") for node in nodes[:3]]
            dan = await nodes[3].join("room", ordered=False)
            seen: dict[str, list[str]] = {"cho": [], "dan": []}
            cho.on_update(lambda update: seen["cho"].append(update.contribution))
            dan.on_update(lambda update: seen["dan"].append(update.contribution))
            for number in range(10):
                await ann.register("question").set(f"q{number}")
                await bob.wait_until(lambda number=number: bob.register("question").value == f"q{number}", WAIT_S)  # type: ignore[misc]
                await bob.register("answer").set(f"a{number}")
            await cho.wait_until(lambda: cho.register("answer").value == "a9", WAIT_S)
            await asyncio.sleep(0)
            order = {what: place for place, what in enumerate(seen["cho"])}
            assert len(order) == len(seen["cho"])
            for number in range(10):
                if f"q{number}" in order and f"a{number}" in order:
                    assert order[f"q{number}"] < order[f"a{number}"]
            assert len(seen["dan"]) == len(set(seen["dan"])) > 0

    run_async(main)


def test_a_newcomer_begins_with_the_state_of_the_objects() -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho") as nodes:
            room = await nodes[0].join("room")
            for number in range(5):
                await room.counter("visits").add()
                await room.register("door").set(number)
            late = await objects.start(
                "late", contacts=[nodes[1].address, nodes[0].address], managers=[node.address for node in nodes],
                token="secret", options=QUICK,
            )  # fmt: skip
            async with late:
                there = await late.join("room")
                assert (there.counter("visits").value, there.register("door").value) == (5, 4)

    run_async(main)


def test_the_entry_of_a_coordinator_that_crashed_is_free_when_its_lease_is_over() -> None:
    async def main() -> None:
        one = ClusterOptions(round_ms=10.0, lease_ms=400.0, claim_ms=100.0, catch_up_ms=100.0, entries=1)
        async with group("ann", "bob", "cho", "dan", options=one) as nodes:
            ann, dan = await nodes[0].join("room"), await nodes[3].join("room")
            held = await dan.become_coordinator(WAIT_S)
            assert held.valid
            await dan.register("door").set("open")
            with pytest.raises(objects.NoEntryError, match=r"room: no entry became free within 0\.2 s"):
                await ann.become_coordinator(0.2)
            nodes[3].abandon()
            taken = await ann.become_coordinator(WAIT_S)
            await ann.register("door").set("closed")
            assert taken.valid
            assert ann.register("door").value == "closed"

    run_async(main)


def test_an_entry_that_is_given_back_is_free_at_once_and_its_former_owner_hears_of_it() -> None:
    async def main() -> None:
        one = ClusterOptions(round_ms=10.0, lease_ms=60_000.0, claim_ms=100.0, entries=1)
        async with group("ann", "bob", "cho", options=one) as nodes:
            ann, bob = await nodes[0].join("room"), await nodes[1].join("room")
            heard: list[tuple[bool, str]] = []
            ann.on_coordination(lambda owns, reason: heard.append((owns, reason)))
            async with await ann.become_coordinator(WAIT_S):
                await ann.register("door").set("mine")
            assert not ann.coordinates
            await bob.become_coordinator(WAIT_S)
            await until(lambda: heard == [(True, "entry 0"), (False, "the application gave it back")])

    run_async(main)


def test_a_writer_that_restarts_goes_on_counting_and_loses_nothing() -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho", "dan") as nodes:
            ann, dan = await nodes[0].join("room"), await nodes[3].join("room")
            await dan.counter("visits").add(4)
            await ann.wait_until(lambda: ann.counter("visits").value == 4, WAIT_S)
            await nodes[3].stop()
            again = await objects.start(
                "dan", contacts=[nodes[0].address], managers=[node.address for node in nodes[:3]], token="secret",
                options=QUICK,
            )  # fmt: skip
            async with again:
                room = await again.join("room")
                await room.counter("visits").add(1)
                await ann.wait_until(lambda: ann.counter("visits").value == 5, WAIT_S)

    run_async(main)


def test_mistakes_are_named() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="name: 'a b' cannot be the name of a process"):
            await objects.start("a b")
        with pytest.raises(UsageError, match="data: ann is a manager, and needs a directory"):
            await objects.start("ann", listen="127.0.0.1:7", managers=["127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9"])
        async with await objects.start("ann") as node:
            room = await node.join("room")
            with pytest.raises(UsageError, match="ann is a member of 'room' already"):
                await node.join("room")
            with pytest.raises(UsageError, match="object: its name has 0 letters"):
                room.register("")
            with pytest.raises(UsageError, match="door: its value cannot be sent"):
                await room.register("door").set(object())
            with pytest.raises(objects.UpdateRefusedError, match="neither `coordinators` nor `managers`"):
                await room.register("door").set("open")
            watcher = await node.join("other", ordered=False)
            with pytest.raises(objects.UpdateRefusedError, match="an observer without order makes no updates"):
                await watcher.register("door").set("open")
            room.leave()
            with pytest.raises(UsageError, match="ann is no member of 'room' any more"):
                await room.register("door").set("open")

    run_async(main)


def test_a_value_of_your_own_is_merged_from_everybodys_contribution() -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho") as nodes:
            rooms = [await node.join("room") for node in nodes]
            highest = [room.merged("record", lambda all_: max(all_, default=0)) for room in rooms]
            await highest[0].contribute(7)
            await highest[1].contribute(3)
            for room, record in zip(rooms, highest, strict=True):
                await room.wait_until(lambda record=record: record.value == 7, WAIT_S)  # type: ignore[misc]
            assert [record.own for record in highest] == [7, 3, None]

    run_async(main)


def test_a_replica_that_has_missed_too_much_has_the_state_of_the_others_again() -> None:
    """It stands still for so long that nobody keeps what it has missed, and then nothing more is said."""

    async def main() -> None:
        short = ClusterOptions(round_ms=10.0, lease_ms=400.0, claim_ms=100.0, recovery_buffer=2, join_ms=200.0)
        async with group("ann", "bob", "cho", "dan", options=short) as nodes:
            rooms = [await node.join("room") for node in nodes]
            dan = rooms[3]
            dan_host = nodes[3]._host
            casts, dan_host._casts = dan_host._casts, None  # Nothing that others cast is heard.
            heard, dan_host._heard = dan_host._heard, lambda _peer, _packets: None  # type: ignore[method-assign]
            for _ in range(20):
                await rooms[0].counter("visits").add()
            for number in range(4):
                await rooms[0].register("door").set(number)
            await until(lambda: rooms[1].register("door").value == 3)
            dan_host._casts, dan_host._heard = casts, heard  # type: ignore[method-assign]
            await dan.wait_until(lambda: (dan.counter("visits").value, dan.register("door").value) == (20, 3), WAIT_S)

    run_async(main)


def test_whoever_asks_gets_the_state_of_others_and_hears_how_many_have_told_it() -> None:
    async def main() -> None:
        async with group("ann", "bob", "cho") as nodes:
            rooms = [await node.join("room") for node in nodes]
            await rooms[0].growing_set("guests").add("ann")
            await until(lambda: len(nodes[2]._machine.clusters["room"].members) >= 2)
            assert await rooms[2].resync(members=2) == 2
            assert rooms[2].growing_set("guests").value == {"ann"}
        async with await objects.start("alone") as node:
            assert await (await node.join("room")).resync() == 0

    run_async(main)


def test_counters_have_one_total_for_each_entry_however_many_have_written() -> None:
    async def main() -> None:
        one = ClusterOptions(round_ms=10.0, lease_ms=400.0, claim_ms=50.0, catch_up_ms=200.0, entries=1)
        async with group("ann", "bob", "cho", options=one) as nodes:
            rooms = [await node.join("room") for node in nodes]
            for _ in range(3):
                for room in rooms:
                    async with await room.become_coordinator(WAIT_S):
                        await room.counter("visits").add()
            for room in rooms:
                await room.wait_until(lambda room=room: room.counter("visits").value == 9, WAIT_S)  # type: ignore[misc]
                assert room.state.total("visits", 0) == 9

    run_async(main)
