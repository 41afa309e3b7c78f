"""An entry has one owner at a time, and every epoch of it one owner for ever: managers, leases, clocks (CLU-6)."""

from __future__ import annotations

from functools import partial

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.protocols.cluster.options import ClusterOptions, check_options
from ordercast.protocols.cluster.packets import Claim, Denied, Granted, Release, Renew, TicketAsked
from ordercast.protocols.cluster.tickets.lease import Lease
from ordercast.protocols.cluster.tickets.manager import Manager
from ordercast.protocols.cluster.tickets.ring import group_of
from tests.support.ticket_lab import MS, TicketLab

DRIFT = 0.1


def test_of_three_that_want_two_entries_two_win_and_the_third_waits_for_a_release() -> None:
    """S12."""
    lab = TicketLab(1, wanting=3, loss=0.0, crashes=False, latest_ms=1)
    lab.run(50)
    owners = {name: one.lease for name, one in lab.wanting.items() if one.grants}
    assert len(owners) == 2
    assert len({lease.entry for lease in owners.values()}) == 2
    lab.run(3_000)
    assert all(one.grants for one in lab.wanting.values()), "everybody's turn comes"
    epochs = [epoch for _, entry, epoch, _ in lab.grants if entry == 0]
    assert epochs == sorted(set(epochs)), "every owner has a higher epoch than the one before"


def test_after_the_owner_died_the_entry_is_given_away_when_its_lease_is_over_and_not_before() -> None:
    """S13."""
    lab = TicketLab(2, wanting=2, entries=1, loss=0.0, crashes=False, latest_ms=1)
    lab.run(40)
    (at, _, epoch, owner) = lab.grants[0]
    lab.crash(owner.split("~")[0])
    lab.run(500)
    again = next(grant for grant in lab.grants if grant[2] > epoch)
    assert again[0] - at >= lab.options.lease_ms * MS


@pytest.mark.parametrize("seed", range(12))
def test_never_two_owners_with_losses_crashes_forgetful_managers_and_clocks_that_differ(seed: int) -> None:
    """O5, O6."""
    lab = TicketLab(seed, rates=DRIFT, drift=DRIFT, managers=3 + seed % 3, tolerated=1).run(2_000)
    assert lab.double == []
    assert lab.overlaps == []
    assert len(lab.grants) > 5


@pytest.mark.parametrize(("drift", "overlapping"), [(0.2, False), (0.0, True)])
def test_an_owner_that_nobody_hears_stops_before_its_entry_is_given_away(drift: float, *, overlapping: bool) -> None:
    """Its clock is slow and the managers' are fast. Without the margin O6 is lost; O5 never is."""
    lab = TicketLab(3, wanting=2, entries=1, loss=0.0, crashes=False, latest_ms=1, drift=drift)
    lab.set_rates(owner=0.8, managers=1.2)
    while not lab.grants:
        lab.run(lab.now / MS + 1)
    lab.cut.add(lab.grants[0][3])
    lab.run(lab.now / MS + 400)
    assert len(lab.grants) > 1
    assert bool(lab.overlaps) is overlapping
    assert lab.double == []


class _AnyManager(Lease):
    @property
    def quorum(self) -> int:
        return 1


class _Amnesiac(Manager):
    def start(self, now_ns: int) -> None:
        self.forgetful = False


class _Hasty(Manager):
    """Learns at once, while claims of its former life are still under way."""

    def start(self, now_ns: int) -> None:
        self.silent_until_ns = now_ns


@pytest.mark.parametrize("mutant", [{"lease": _AnyManager}, {"manager": _Amnesiac}])
def test_without_quorums_or_memory_an_epoch_has_two_owners(mutant: dict[str, type]) -> None:
    runs = [TicketLab(seed, **mutant).run(3_000) for seed in range(20)]  # type: ignore[arg-type]
    assert any(lab.double for lab in runs)


@pytest.mark.parametrize(("kind", "owners"), [(Manager, 1), (_Hasty, 2)])
def test_a_manager_that_forgot_learns_only_when_claims_of_its_former_life_are_over(
    kind: type[Manager], owners: int
) -> None:
    """CLU-6.9. m0 gave epoch 1 to q, died, and asks m1 and m2 before q's claim has reached them."""
    options = ClusterOptions(managers=("m0", "m1", "m2"), entries=1)
    group = {name: Manager(Peer("node", name, 0, name), options) for name in options.managers}
    q, r = Peer("node", "q", 0, "q"), Peer("node", "r", 0, "r")
    granted: dict[str, set[str]] = {"q": set(), "r": set()}

    def tell(manager: str, sender: Peer, packet: Packet, now_ms: int) -> None:
        def answer(address: str, said: Packet) -> None:
            if address in group:
                tell(address, Peer("node", manager, 1, manager), said, now_ms)
            elif isinstance(said, Granted):
                granted[address].add(manager)

        group[manager].receive(sender, packet, now_ms * MS, answer)

    tell("m0", q, Claim("room", 0, 1), 0)
    group["m0"] = kind(Peer("node", "m0", 1, "m0"), options)
    group["m0"].start(1 * MS)
    tell("m0", r, TicketAsked("room", 0, 1), 2)  # Somebody's question makes it learn, if it dares.
    tell("m1", q, Claim("room", 0, 1), 3)
    for manager in ("m0", "m2"):
        tell(manager, r, Claim("room", 0, 1), 4)
    assert sum(len(managers) >= 2 for managers in granted.values()) == owners
    assert len(granted["q"]) == 2


def test_a_manager_believes_who_the_sender_is_not_what_it_says() -> None:
    options = ClusterOptions(managers=("m0", "m1", "m2"))
    manager = Manager(Peer("node", "m0", 0, "m0"), options)
    owner, thief = Peer("node", "q", 0, "q"), Peer("node", "q", 1, "q")
    said: list[object] = []
    entry = next(i for i in range(8) if "m0" in group_of("room", i, options.managers, 1))

    def receive(peer: Peer, packet: Claim | Release | Renew | TicketAsked, now_ms: int) -> object:
        manager.receive(peer, packet, now_ms * MS, lambda _, answer: said.append(answer))
        return said.pop() if said else None

    assert receive(owner, Claim("room", entry, 1), 0) == Granted("room", entry, 1, 0)
    assert receive(owner, Claim("room", entry, 1), 1) == Granted("room", entry, 1, 0), "asked twice, told twice"
    assert receive(thief, Claim("room", entry, 1), 1) == Denied("room", entry, 1)
    assert receive(thief, Renew("room", entry, 1, 1, 5), 1) is None, "another life is another process"
    receive(thief, Release("room", entry, 1, 0), 1)
    assert receive(thief, Claim("room", entry, 2), 2) == Denied("room", entry, 2)
    receive(owner, Release("room", entry, 1, 77), 2)
    assert receive(thief, Claim("room", entry, 2), 2) == Granted("room", entry, 2, 77)


def test_a_manager_knows_nothing_of_entries_that_are_not_its_own_and_keeps_a_bounded_number() -> None:
    options = ClusterOptions(managers=tuple(f"m{i}" for i in range(9)), entries=40)
    manager = Manager(Peer("node", "m0", 0, "m0"), options)
    for entry in range(-5, 50):
        manager.receive(Peer("node", "q", 0, "q"), TicketAsked("room", entry, 1), 0, lambda _address, _packet: None)
    mine = [entry for entry in range(40) if "m0" in group_of("room", entry, options.managers, 1)]
    assert sorted(manager.tickets) == [("room", entry) for entry in mine]


def test_settings_that_contradict_each_other_are_one_line() -> None:
    for options, culprit in (
        ({"managers": ("a",)}, "managers: 1; to tolerate 1 dead takes 3"),
        ({"coordinators": ("a", "b"), "entries": 1}, "coordinators: 2 for 1 entries"),
        ({"coordinators": ("a",), "managers": ("a", "b", "c")}, "not both"),
        ({"managers": ("a", "a", "b")}, "managers: one stands there twice"),
    ):
        with pytest.raises(UsageError, match=culprit):
            check_options(ClusterOptions(**options))  # type: ignore[arg-type]


def test_managers_that_all_forgot_ask_each_other_once_for_every_question_and_then_are_silent() -> None:
    """CLU-6.9: a storm of questions would be no answer either. The entry stays closed."""
    addresses = ("m0", "m1", "m2")
    options = ClusterOptions(entries=1, managers=addresses)
    managers = {address: Manager(Peer("node", address, 1, address), options) for address in addresses}
    for manager in managers.values():
        manager.start(0)
    long_after = 10 * managers["m0"].silent_until_ns
    ann = Peer("node", "ann", 0, "ann")
    carried = 0

    def carry(sender: Peer, address: str, packet: Packet) -> None:
        nonlocal carried
        carried += 1
        assert carried <= 18, "of every question of ann: three to the managers, and two of each to the others"
        assert address != "ann", "nobody can answer what nobody remembers"
        manager = managers[address]
        manager.receive(sender, packet, long_after, partial(carry, manager.me))

    for question in (1, 2):
        for address in addresses:
            carry(ann, address, TicketAsked("room", 0, question))
    assert carried == 18
