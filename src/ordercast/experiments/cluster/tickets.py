"""X5: how long it takes to own an entry, what that costs, who is left without, and what an owner's crash does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ordercast.core.chance import salt, shuffled, unit
from ordercast.core.messages import Packet
from ordercast.core.process import OverlayMachine, OverlayPlace
from ordercast.experiments.cluster.group import Group
from ordercast.experiments.cluster.setting import CLUSTER, ClusterSetting
from ordercast.experiments.cluster.sources import ENTRY_WORDS, P2P05, WORDS
from ordercast.experiments.kit.claims import HELD, VIOLATED, guarantees_hold
from ordercast.experiments.kit.figures import CONFIDENCE, Look, drawn, label, line, panels
from ordercast.experiments.kit.results import Curve, curve, listed
from ordercast.experiments.kit.study import OURS, PROTOTYPE, Picture, Row, SourceClaim, Study
from ordercast.protocols.cluster import packets
from ordercast.protocols.cluster.application import Silent
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.sim.clock import ns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENTRIES = 8
_LEASE_MS = 2000.0
_ROUND_MS = 100.0
_DRIFT = 0.01
_TALK = (
    packets.TicketAsked, packets.TicketState, packets.Claim, packets.Granted, packets.Denied, packets.Release
)  # fmt: skip
_UPKEEP = (packets.Renew, packets.Renewed)
_LOOKS = {1: Look("3 managers an entry", "#0072b2"), 2: Look("5 managers an entry", "#d55e00", "^", "--")}


def _scale(seeds: int) -> list[Row]:
    return [
        {"tolerated": tolerated, "wanting": wanting, "loss": loss, "seed": seed}
        for tolerated in (1, 2)
        for wanting in (4, 8, 12)
        for loss in (0.0, 0.1)
        for seed in range(seeds)
    ]


class _Owners(Silent):
    """Hears when one member owns an entry, and when not any more."""

    def __init__(self, member: str, told: list[tuple[int, str, str]], clock: Any) -> None:
        self._member, self._told, self._clock = member, told, clock

    def coordinates(self, cluster: str, *, entry: int, caught_up: bool) -> None:  # noqa: ARG002 - there is one cluster
        self._told.append((self._clock.now, self._member, f"owns {entry}"))

    def coordinates_no_more(self, cluster: str, reason: str) -> None:  # noqa: ARG002 - the same
        self._told.append((self._clock.now, self._member, "owns none"))


class _Tickets:
    """30 members, some of which want an entry; after a while one of the owners crashes."""

    def __init__(self, parameters: Row) -> None:
        self.seed = cast("int", parameters["seed"])
        self.tolerated = cast("int", parameters["tolerated"])
        setting = ClusterSetting(
            members=30, updaters=_ENTRIES, events_per_round=0.1, seed=self.seed, loss=cast("float", parameters["loss"])
        )
        self.told: list[tuple[int, str, str]] = []
        self.sent: Counter[str] = Counter()
        self.group = Group(setting, self._build)
        self.clock = self.group.world.clock
        self.group.world.tap = self._sent
        self.wanting = self.group.names[: cast("int", parameters["wanting"])]
        self.asked: dict[str, int] = {}
        self.shared = 0
        """How often two members believed to own one entry."""

    def _build(self, wires: Any, place: OverlayPlace) -> OverlayMachine:
        options = ClusterOptions(
            round_ms=_ROUND_MS, clusters=(CLUSTER,), entries=_ENTRIES, managers=self.group.names[-5:], drift=_DRIFT,
            tolerated=self.tolerated, lease_ms=_LEASE_MS, claim_ms=3 * _ROUND_MS, view=31, forget_rounds=10_000,
        )  # fmt: skip
        return ClusterMachine(wires, place, options, _Owners(place.me.name, self.told, self.clock))

    def _sent(self, _source: str, _target: str, packet: Packet) -> None:
        self.sent["talk"] += isinstance(packet, _TALK)
        self.sent["upkeep"] += isinstance(packet, _UPKEEP)

    def live(self) -> tuple[str | None, int]:
        """Returns who crashed, and when."""
        for name in self.group.names:
            self.group.world.start(name)
        for name in self.wanting:
            moment = self.clock.now + ns(_ROUND_MS * (1 + unit(salt(self.seed, "wants", name))))
            self.clock.at(moment, self._want, name)
        self._pass(6 * _LEASE_MS)
        owners = [name for name in self.wanting if self._owns(name) is not None]
        victim = shuffled(owners, self.seed, "victim")[0] if owners else None
        crash = self.clock.now
        if victim is not None:
            self.group.world.crash(victim)
        self._pass(6 * _LEASE_MS)
        return victim, crash

    def _want(self, name: str, _: None) -> None:
        self.asked[name] = self.clock.now
        self.group.world.act(name, self.group.machine(name).coordinate, CLUSTER)

    def _pass(self, milliseconds: float) -> None:
        """Look at every tenth of a round whether two own the same."""
        for _ in range(round(milliseconds / (_ROUND_MS / 10))):
            self.clock.run_until(self.clock.now + ns(_ROUND_MS / 10))
            owned = Counter(filter(None, (self._owns(name) for name in self.wanting)))
            self.shared += sum(count > 1 for count in owned.values())

    def _owns(self, name: str) -> str | None:
        machine = self.group.machine(name)
        if machine is None:
            return None
        lease = machine.clusters[CLUSTER].coordinating.lease
        return f"entry {lease.entry}" if lease.is_valid(self.clock.now) else None


def run(parameters: Row) -> Row:
    tickets = _Tickets(parameters)
    victim, crash = tickets.live()
    first: dict[str, int] = {}
    grants = [(time, member) for time, member, what in tickets.told if what.startswith("owns ") and what != "owns none"]
    for time, member in grants:
        first.setdefault(member, time)
    waits = [(first[name] - tickets.asked[name]) / 1e6 for name in first]
    later = [time for time, member in grants if first.get(member, 0) > crash]
    denied = sum(first.get(name, crash + 1) > crash for name in tickets.wanting)
    regrants = [time - crash for time in later if time > crash]
    return {
        "judged": VIOLATED if tickets.shared else HELD,
        "failed_checks": "two owners" if tickets.shared else "",
        "owners": len([name for name in first.values() if name <= crash]),
        "acquire_ms": fmean(wait for wait, name in zip(waits, first, strict=True) if first[name] <= crash),
        "denied_share": denied / len(tickets.wanting),
        "regrant_ms": min(regrants) / 1e6 if regrants and victim is not None else None,
        "packets_per_grant": tickets.sent["talk"] / len(grants) if grants else None,
        "upkeep_per_lease": tickets.sent["upkeep"] / (12 * max(1, min(len(tickets.wanting), _ENTRIES))),
    }


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows, "No two members ever own one entry at the same time.", what="wanting"),
        _everybody_gets_one(rows),
        _the_rest_is_denied(rows),
        _regrant(rows),
    ]


def _by_wanting(rows: Sequence[Row], column: str, tolerated: int, loss: float = 0.0) -> Curve:
    return curve(rows, column, along="wanting", tolerated=tolerated, loss=loss)


def _everybody_gets_one(rows: Sequence[Row]) -> SourceClaim:
    runs = [row for row in rows if cast("int", row["wanting"]) <= _ENTRIES]
    without = sum(float(row["denied_share"] or 0) > 0 for row in runs)
    return SourceClaim(
        id="everybody-gets-an-entry", source=OURS,
        statement="If no more members want an entry than there are, all of them own one.",
        measured=f"somebody was left without one in {without} of {len(runs)} runs; time to acquire with 3 managers: "
        + listed(_by_wanting(rows, "acquire_ms", 1), 0, "ms"),
        holds=without == 0 if runs else None,
    )  # fmt: skip


def _the_rest_is_denied(rows: Sequence[Row]) -> SourceClaim:
    runs = [row for row in rows if cast("int", row["wanting"]) > _ENTRIES and not row["loss"]]
    expected = {1 - _ENTRIES / cast("int", row["wanting"]) for row in runs}
    found = {round(float(row["denied_share"] or 0), 6) for row in runs}
    return SourceClaim(
        id="the-rest-is-denied", source=PROTOTYPE,
        statement="Of 1.5 times as many, exactly as many own one as there are entries, if no datagram is lost (lost "
        "renewals may end a lease).",
        measured=f"denied: {', '.join(f'{share:.1%}' for share in sorted(found))}",
        holds=found == {round(share, 6) for share in expected} if runs else None,
    )  # fmt: skip


def _regrant(rows: Sequence[Row]) -> SourceClaim:
    times = [float(row["regrant_ms"]) for row in rows if isinstance(row["regrant_ms"], float) and not row["loss"]]
    # The owner renewed at most a quarter of a lease before it crashed; its managers' clocks may be fast.
    least = _LEASE_MS * (0.75 - _DRIFT) - 3 * _ROUND_MS
    return SourceClaim(
        id="regrant-after-a-crash", source=PROTOTYPE,
        statement="The entry of an owner that crashed is given to another one that waits, not before its lease is over "
        "and within three leases, if no datagram is lost.",
        measured=f"{min(times):.0f} to {max(times):.0f} ms after the crash, n = {len(times)}; the lease is "
        f"{_LEASE_MS:.0f} ms, renewed every quarter" if times else "nothing",
        holds=least <= min(times) and max(times) <= 3 * _LEASE_MS if times else None,
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    rows: list[Row] = results.to_pylist()
    return drawn(rows, directory, {"tickets": _tickets})


def _tickets(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, f"Time from the wish for an entry to its possession, of those who got one before the crash, and "
        f"datagrams between members and managers per grant; {_ENTRIES} entries, nothing lost. {CONFIDENCE}",
        width=4.2,
    )  # fmt: skip
    for tolerated, look in _LOOKS.items():
        line(left, _by_wanting(rows, "acquire_ms", tolerated), look)
        line(right, _by_wanting(rows, "packets_per_grant", tolerated), look)
    label(left, "Time to acquire", "members that want an entry", "ms")
    label(right, "Cost of a grant", "members that want an entry", "datagrams")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
    return figure


STUDY = Study(
    name="cluster-tickets",
    version=1,
    title="Causal clusters: acquiring entries, and what the crash of a coordinator does",
    source=P2P05,
    description=(
        f"30 members, {_ENTRIES} entries, managers that tolerate one or two crashes among themselves, leases of "
        f"{_LEASE_MS:.0f} ms. 4, 8 or 12 members want an entry and keep wanting it; after six leases one owner "
        "crashes. With and without 10 % of the datagrams lost. Ten times a round it is looked whether two own one."
    ),
    scales={"quick": _scale(seeds=3), "paper": _scale(seeds=20)},
    run=run,
    claims=claims,
    figures=figures,
    words={"[P2P05]": P2P05, **ENTRY_WORDS, "round": WORDS["round"]},
)
