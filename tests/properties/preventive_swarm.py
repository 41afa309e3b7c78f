"""A swarm of small runs of the preventive broadcast in which everything changes, judged every time.

    python -m tests.properties.preventive_swarm --seeds 1000

Processes join, leave, crash for good or for a while, with and without their memory; links come and go all the time,
connections break, partitions part; control packets are lost, late and out of order; buffers hold nothing, little or
much, and logs are short. After every event the invariants of the protocol are looked at in all machines.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.chance import mix, salt, unit
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.process import OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.cyclon import Cyclon
from ordercast.overlay.spray import Spray
from ordercast.overlay.views import ViewSampler
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import (
    Ack,
    Arc,
    BeginAnew,
    Digest,
    DigestAsk,
    DigestRefused,
    Heard,
    Hint,
    HintAsk,
    HoldRelease,
    LockFailed,
    Marked,
    Stranded,
)
from ordercast.protocols.preventive.samplers import SAMPLERS
from ordercast.protocols.preventive.variants import PREVENTIVE
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import KIND, drain, start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import pass_time, recorded
from ordercast.sim.workload import start_workload
from ordercast.verify.verdict import Verdict
from tests.properties.swarm import Dice
from tests.support.preventive_lab import Invariants
from tests.support.restless_sampler import Name, Named, RestlessSampler, restless
from tests.support.swarm_command import Family, judged, run_seeds, swarm_parser

DURATION_MS = 1500
LONG = 4096
"""A log of this length has everything of these runs."""
HASTY = 9
"""A neighbour that is so many messages behind is given up: less than what is published in a round trip."""
RESCUES = 5
"""So often the living are connected by hand: where nobody may be slow, all links may be given up again."""
MOST = 9
"""So many processes there are at most."""
CONTROL = (
    Ack, Arc, BeginAnew, Digest, DigestAsk, DigestRefused, Heard, Hint, HintAsk, HoldRelease, LockFailed, Marked, Name,
    Named, Stranded, *Spray.packets, *Cyclon.packets,
)  # fmt: skip
"""What may be lost, late and out of order without harm."""


class RoughControl:
    """Wires that lose some control packets and let others wait; everything else passes as it is."""

    def __init__(self, life: Any, salted: int, loss: float, late: float) -> None:
        self._life = life
        self._salt = salted
        self._loss = loss
        self._late = late
        self._sent = 0

    def send(self, connection: int, packet: Packet) -> None:
        if isinstance(packet, CONTROL):
            self._sent += 1
            drawn = unit(mix(self._salt, self._sent))
            if drawn < self._loss:
                return
            if drawn < self._loss + self._late:
                clock = self._life.world.clock
                clock.at(clock.now + mix(self._salt, self._sent, 1) % ns(60), self._send_later, connection, packet)
                return
        self._life.send(connection, packet)

    def _send_later(self, connection: int, packet: Packet) -> None:
        if self._life.alive:
            self._life.send(connection, packet)

    @property
    def now_ns(self) -> int:
        return self._life.now_ns  # type: ignore[no-any-return]

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._life.set_timer(name, delay_ns, background=background)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self._life.note(kind, info)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._life, name)


def protocol(seed: int, machine: type[Preventive] = Preventive) -> ProtocolInfo:
    """The broadcast on a sampling that never stands still and a control plane that loses and reorders."""
    dice = Dice(seed, "preventive-control")
    loss, late = dice.pick([0.0, 0.05, 0.3]), dice.pick([0.0, 0.1, 0.5])

    class Restless(machine):  # type: ignore[misc, valid-type]
        samplers = {**SAMPLERS, "restless": (RestlessSampler, restless)}  # noqa: RUF012

    def build(wires: OverlayWires, place: OverlayPlace, options: Any) -> Preventive:
        if not place.genesis:  # Whoever comes later knows the way to everybody, so that somebody is there.
            place = msgspec.structs.replace(place, contacts=(*place.contacts, *(f"n{i}" for i in range(MOST))))
        rough: Any = RoughControl(wires, salt(seed, "control", place.me.name, place.me.life), loss, late)
        built: Preventive = Restless(rough, place, options)
        return built

    return msgspec.structs.replace(
        PREVENTIVE, build_overlay=build, packets=(*PREVENTIVE.packets, *RestlessSampler.packets)
    )


# Scenarios


def swarm_scenario(seed: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "preventive")
    nodes = [f"n{i}" for i in range(3 + dice.below(MOST - 2))]
    later = {node: dice.between(1, DURATION_MS * 0.6) for node in nodes[2:] if dice.chance(0.3)}
    edges = _graph(dice, nodes, later)
    faults = _faults(dice, nodes, later)
    options = _options(dice)
    leaves = _leaves(dice, nodes, later)
    return parse_scenario(
        {
            "name": f"preventive-{seed}",
            "overlay": {"kind": "edges", "edges": edges},
            "protocol": "preventive",
            "options": options,
            "duration_ms": DURATION_MS,
            "link": {"latency_ms": dice.pick([5.0, 20.0, {"kind": "uniform", "low_ms": 1, "high_ms": 60}])},
            "detector": {"delay_ms": dice.pick([1, 20, 100, 300])},
            "workload": _workload(dice, nodes),
            "fault": [*_joins(later), *leaves, *faults],
            "trace": {"record": "app"},
        }
    )


def _graph(dice: Dice, nodes: list[str], later: dict[str, float]) -> list[list[str]]:
    """A random connected graph; every process but the first knows somebody who is there from the beginning."""
    early = [node for node in nodes if node not in later]
    edges = {(dice.pick(early[:i]), early[i]) for i in range(1, len(early))}
    edges |= {(dice.pick(early), node) for node in later}
    edges |= {(one, other) for one in nodes for other in nodes if one < other and dice.chance(0.2)}
    return [list(edge) for edge in sorted({(min(edge), max(edge)) for edge in edges})]


def _options(dice: Dice) -> dict[str, Any]:
    return {
        "sampling": dice.pick(["restless", "restless", "spray", "cyclon"]),
        "period_ms": dice.pick([50, 200]),
        "view_size": dice.pick([2, 5]),
        "exchange_length": 2,
        "leave_ms": 20_000,
        "max_buffer": dice.pick([0, 1, 2, 8, 1024]),
        "max_attempts": dice.pick([1, 2, 4, 8]),
        "ack_ms": dice.pick([260, 1000]),
        "hold_ms": dice.pick([50, 500]),
        "join_ms": dice.pick([300, 600]),
        "retry_ms": dice.pick([20, 50]),
        "log_keep": dice.pick([0, 8, 64, LONG, LONG]),
        "max_send_queue": dice.pick([HASTY, 60, 8192]),
        "skip_sender": dice.chance(0.7),
        "fallback": dice.pick(["digest", "flood", "hint"]),
    }


def _workload(dice: Dice, nodes: list[str]) -> list[dict[str, Any]]:
    rate = dice.pick([20, 60, 150])
    quiet = dice.chance(0.2)
    silent_first = [{"kind": "open", "rate_per_s": rate, "publishers": [nodes[0]], "payload_bytes": 8}]
    everybody = [{"kind": "open", "rate_per_s": rate, "payload_bytes": 8}]
    reply = {"kind": "reply", "probability": 0.3, "depth": 3, "limit": 80, "payload_bytes": 8}
    return [*(silent_first if quiet else everybody), reply]


def _joins(later: dict[str, float]) -> list[dict[str, Any]]:
    return [{"kind": "join", "node": node, "at_ms": at} for node, at in later.items()]


def _leaves(dice: Dice, nodes: list[str], later: dict[str, float]) -> list[dict[str, Any]]:
    """Some go at any time, also while they are parted from the others."""
    return [
        {"kind": "leave", "node": node, "at_ms": dice.between(later.get(node, 0) + 1, DURATION_MS)}
        for node in nodes[2:]
        if dice.chance(0.15)
    ]


def _faults(dice: Dice, nodes: list[str], later: dict[str, float]) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = []
    for node in dice.sample(nodes[1:], dice.below(4)):
        start = dice.between(later.get(node, 0), DURATION_MS * 0.8) + 0.1
        crash = {"kind": "crash", "node": node, "at_ms": start, "survive": dice.pick(["all", "none", "random"])}
        if dice.chance(0.8):
            end = start + dice.between(1, DURATION_MS * 0.15)
            crash |= {"recover_ms": end, "state": dice.pick(["kept", "lost"])}
        faults.append(crash)
    for _ in range(dice.below(4)):
        one, other = dice.sample(nodes, 2)
        faults.append({"kind": "cut", "between": [one, other], "at_ms": dice.between(0, DURATION_MS)})
    for _ in range(dice.below(3)):
        sides = dice.sample(nodes, 2 + dice.below(len(nodes) - 1))
        cut = 1 + dice.below(len(sides) - 1)
        start = dice.between(0, DURATION_MS * 0.6)
        until = start + dice.between(1, DURATION_MS * 0.35)
        faults.append({"kind": "partition", "sides": [sides[:cut], sides[cut:]], "at_ms": start, "until_ms": until})
    for node in dice.sample(nodes, dice.below(2)):
        start = dice.between(0, DURATION_MS * 0.6)
        until = start + dice.between(1, DURATION_MS * 0.35)
        faults.append({"kind": "pause", "node": node, "at_ms": start, "until_ms": until})
    return faults


# Runs


def live(world: OverlayWorld, counts: Counter[str]) -> tuple[int, bool]:
    """Like every run; but when the faults are over, somebody sees to it that the living are connected."""
    invariants = Invariants(world.processes)
    OverlayFaults(world)
    start_workload(world)
    start_everybody(world)
    events = pass_time(world.clock, ns(world.scenario.duration_ms), None)
    world.end_faults()
    for _ in range(RESCUES):
        _reconnect(world)
        events += drain(world)
        if is_connected(world):
            break
    counts += invariants.looked
    for process in world.processes.processes.values():
        counts += process.counters
    assert not world.processes.peer_errors, world.processes.peer_errors[:3]
    return events, world.clock.at_rest


def is_connected(world: OverlayWorld) -> bool:
    """Whether the safe links connect all who live, in both directions: only then all must have the same (PRV-P4)."""
    machines = {node.machine.me.pid: node.machine for node in world.nodes.values() if node.alive}  # type: ignore[union-attr]
    forth = {pid: {to for to, link in machine.links.out.items() if link.safe} for pid, machine in machines.items()}  # type: ignore[union-attr]
    back = {pid: {one for one, there in forth.items() if pid in there} for pid in forth}
    return all(_reached(links, next(iter(forth))) >= forth.keys() for links in (forth, back)) if forth else True


def _reached(links: dict[Origin, set[Origin]], first: Origin) -> set[Origin]:
    found, todo = {first}, [first]
    while todo:
        for pid in sorted(links.get(todo.pop(), set()) - found):
            found.add(pid)
            todo.append(pid)
    return found


def _reconnect(world: OverlayWorld) -> None:
    living = [node for node in world.nodes.values() if node.alive]
    for pair in pairwise(living):  # Both learn of it: one of them may begin a new life, which knows nothing.
        for one, other in (pair, pair[::-1]):
            sampler = one.machine.sampler  # type: ignore[union-attr]
            if isinstance(sampler, RestlessSampler):
                world.processes.act(one.node, sampler.rescue, (str(other.node),))
            elif isinstance(sampler, ViewSampler):
                world.processes.act(one.node, sampler._seek, str(other.node))


def judge_seed(
    seed: int, out: Path, machine: type[Preventive] = Preventive, counts: Counter[str] | None = None
) -> Verdict:
    """Run and judge; raises what the invariants find wrong."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    kind = KIND._replace(live=partial(live, counts=counts if counts is not None else Counter()))
    recorded(kind, swarm_scenario(seed), protocol(seed, machine), seed, out, packets=False)
    (verdict,) = judge_path(out)
    return verdict


def main() -> int:
    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        wrong, deliveries = judged(judge_seed(seed, out, counts=counts))
        return wrong, deliveries + counts

    return run_seeds(swarm_parser(__doc__).parse_args(), [Family("preventive", attempt, swarm_scenario)])


if __name__ == "__main__":
    sys.exit(main())
