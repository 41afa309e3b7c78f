"""What managers of entries have promised outlives them, and nobody owns what another one was promised."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ordercast import objects
from ordercast.core.errors import UsageError
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.net.host import Carrier
from ordercast.net.turn_ports import lasting_door
from ordercast.objects.ticket_log import TicketLog
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import TicketAsked, TicketState
from ordercast.protocols.cluster.tickets.manager import EntryTicket, Manager
from tests.support.loop import run_async, until
from tests.support.ticket_lab import TicketLab

ONE = ClusterOptions(round_ms=10.0, lease_ms=1_500.0, claim_ms=100.0, catch_up_ms=100.0, join_ms=200.0, entries=1)
WAIT_S = 20.0
NAMES = ("m0", "m1", "m2")


class _Forgets(TicketLog):
    """Mutant: says that it has everything, and writes nothing."""

    def flush(self) -> None:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_never_two_owners_while_all_managers_are_killed_again_and_again(seed: int, tmp_path: Path) -> None:
    """O5, O6: with their disks there is no limit to how many of them die at a time."""
    lab = TicketLab(seed, disks=tmp_path, rates=0.1, drift=0.1).run(1_500)
    assert lab.double == []
    assert lab.overlaps == []
    assert max(lab.lives.values()) > 3
    assert len(lab.grants) > 5


def test_managers_that_only_say_that_they_remember_give_an_epoch_away_twice(tmp_path: Path) -> None:
    labs = [TicketLab(seed, disks=tmp_path / str(seed), log=_Forgets).run(1_500) for seed in range(4)]
    assert any(lab.double for lab in labs)


def test_all_that_was_promised_is_there_in_the_next_life_and_how_far_an_owner_came_after_an_orderly_end(
    tmp_path: Path,
) -> None:
    log = TicketLog(tmp_path, "ann", first_life=True)
    log.keep("room", 0, EntryTicket(1, ("bob", 0), 500, 0))
    log.keep("room", 1, EntryTicket(4, None, 0, 77))
    log.flush()
    log.keep("room", 0, EntryTicket(1, ("bob", 0), 900, 12))
    log.flush()
    log.abandon()

    again = TicketLog(tmp_path, "ann", first_life=False)
    assert again.everything
    assert again.tickets() == {("room", 0): EntryTicket(1, ("bob", 0), 1, 0), ("room", 1): EntryTicket(4, None, 0, 77)}
    again.keep("room", 0, EntryTicket(1, ("bob", 0), 900, 12))
    again.close()
    last = TicketLog(tmp_path, "ann", first_life=False)
    assert last.tickets()["room", 0] == EntryTicket(1, ("bob", 0), 1, 12)
    last.abandon()


def test_a_log_grows_with_its_tickets_and_not_with_their_age(tmp_path: Path) -> None:
    log = TicketLog(tmp_path, "ann", first_life=True, least_bytes=2_000)
    for epoch in range(1, 400):
        log.keep("room", epoch % 3, EntryTicket(epoch, ("bob", epoch), 1, 0))
        log.flush()
    log.abandon()
    assert sum(path.stat().st_size for path in (tmp_path / "tickets").iterdir()) < 3_000


def test_a_manager_whose_directory_was_lost_learns_and_knows_in_all_later_lives_that_there_may_be_more(
    tmp_path: Path,
) -> None:
    """CLU-6.9: what it has promised since is not all that it ever has."""
    lost = TicketLog(tmp_path, "ann", first_life=False)
    assert not lost.everything
    lost.keep("room", 0, EntryTicket(3, ("bob", 0), 1, 0))
    lost.close()
    later = TicketLog(tmp_path, "ann", first_life=False)
    options = ClusterOptions(managers=NAMES, entries=2)
    manager = Manager(Peer("node", "m0", 7, "m0"), options)
    manager.remember(later.tickets(), everything=later.everything)
    manager.start(0)
    later.abandon()
    said: list[Packet] = []
    for entry in (0, 1):
        manager.receive(Peer("node", "q", 0, "q"), TicketAsked("room", entry, 1), 1, lambda _to, one: said.append(one))
    assert said == [TicketState("room", 0, 1, 3, True, 0)], "it answers for what it knows, and for nothing else"


def test_a_lease_that_a_manager_only_heard_of_runs_on_after_its_restart() -> None:
    """It has no owner there: that must not look like an entry that was given back."""
    manager = Manager(Peer("node", "m0", 1, "m0"), ClusterOptions(managers=NAMES, entries=1))
    manager.remember({("room", 0): EntryTicket(3, None, 1, 0)}, everything=True)
    manager.start(1_000)
    assert manager.tickets["room", 0].lease_until_ns > 1_000


def test_damage_and_the_wrong_directory_are_named(tmp_path: Path) -> None:
    log = TicketLog(tmp_path, "ann", first_life=True)
    for epoch in range(1, 50):
        log.keep("room", 0, EntryTicket(epoch, ("bob", 0), 1, 0))
        log.flush()
    log.abandon()
    with pytest.raises(UsageError, match="these are the tickets of ann, not of bob"):
        TicketLog(tmp_path, "bob", first_life=False)
    (path,) = (tmp_path / "tickets").glob("*.log")
    with path.open("r+b") as file:
        file.seek(200)
        file.write(os.urandom(40))
    with pytest.raises(UsageError, match=r"00000001\.log: damaged at byte \d+"):
        TicketLog(tmp_path, "ann", first_life=False)


class Managers:
    """Three processes that only manage, each with a directory of its own."""

    def __init__(self, directory: Path, carrier: Carrier) -> None:
        self._directory = directory
        self._carrier: Carrier = carrier
        doors = [lasting_door() for _ in NAMES]
        self.addresses = [f"127.0.0.1:{door.getsockname()[1]}" for door in doors]
        for door in doors:
            door.close()
        self._nodes: list[objects.Node] = []

    async def node(
        self, name: str, listen: str = "127.0.0.1:0", data: Path | None = None, contacts: tuple[str, ...] = ()
    ) -> objects.Node:
        return await objects.start(
            name, listen=listen, contacts=contacts, managers=self.addresses, token="secret", options=ONE, data=data,
            carrier=self._carrier,
        )  # fmt: skip

    async def start(self) -> None:
        for name, address in zip(NAMES, self.addresses, strict=True):
            self._nodes.append(await self.node(name, address, self._directory / name))

    def kill(self) -> None:
        while self._nodes:
            self._nodes.pop().abandon()

    async def __aenter__(self) -> Managers:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.stop() for node in self._nodes))


@pytest.mark.parametrize("carrier", ["udp", "tcp"])
def test_an_entry_stays_its_owners_while_all_managers_are_killed_and_come_back(
    carrier: Carrier, tmp_path: Path
) -> None:
    async def main() -> None:
        async with (
            Managers(tmp_path, carrier) as managers, await managers.node("ann") as ann,
            await managers.node("bob", contacts=(ann.address,)) as bob,
        ):  # fmt: skip
            anns, bobs = await ann.join("room"), await bob.join("room")
            epochs: list[int] = []
            bobs.on_update(lambda update: epochs.append(update.epoch))
            await anns.become_coordinator(WAIT_S)
            await anns.register("door").set("anns")
            for _ in range(2):
                managers.kill()
                await managers.start()
                with pytest.raises(objects.NoEntryError):
                    await bobs.become_coordinator(0.3)
            await anns.register("door").set("still anns")
            ann.abandon()
            await bobs.become_coordinator(WAIT_S)
            await bobs.register("door").set("bobs")
            await until(lambda: len(set(epochs)) == 2)
            assert epochs == sorted(epochs)

    run_async(main)
