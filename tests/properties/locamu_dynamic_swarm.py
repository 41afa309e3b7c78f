"""A swarm of small LoCaMu runs in which groups and the tree change, judged every time.

    python -m tests.properties.locamu_dynamic_swarm --seeds 1000 --f 2

Nodes subscribe and unsubscribe, leaves join and leave, everybody publishes; links lose, double and reorder; nodes crash
and recover, and are suspected wrongly. Beside the judge, an oracle looks into every machine: see `Oracle`.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.locamu.membership.entrance import GONE, INSIDE, OUTSIDE
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Settled,
    Stable,
    addressee,
    decode,
    from_tag,
    is_internal,
)
from ordercast.protocols.locamu.neighbourhood import NOBODY
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.ordering import CausalOrdering
from ordercast.protocols.locamu.store import Copy
from ordercast.protocols.locamu.variants import LOCAMU
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import Verdict
from tests.properties.locamu_swarm import drawn_options
from tests.properties.swarm import Dice
from tests.support.locamu_lab import with_parts
from tests.support.swarm_command import Family, judged, run_seeds, swarm_parser

DURATION_MS = 1200


class OracleError(AssertionError):
    """A machine did what it must not."""


class Oracle:
    """Watches all machines of a run.

    Nobody processes a message before one that precedes it and is routed to it, by the list and the tree that it goes by
    (LCM-N7). Nobody lacks that list (the machine itself complains), all who have it have the same, and nobody processes
    a message by a list older than a stable one (LCM-E5). At the end every member of the list that a message went by has
    delivered it once, nobody else has, and nothing is left in any store.
    """

    def __init__(self) -> None:
        self.machines: dict[NodeId, Locamu] = {}
        self.lists: dict[tuple[Topic, int], frozenset[int]] = {}
        self.pasts: dict[str, set[str]] = {}
        self.routed: dict[str, frozenset[NodeId]] = {}
        self.known: dict[NodeId, set[str]] = defaultdict(set)
        self.processed: dict[NodeId, set[str]] = defaultdict(set)
        self.owed: dict[str, frozenset[NodeId]] = {}
        """Of each message of an application, who has to deliver it."""
        self.stable: Counter[tuple[NodeId, Topic]] = Counter()
        self.settled: Counter[NodeId] = Counter()
        self.counts: Counter[str] = Counter()

    def protocol(self, machine: type[Locamu] = Locamu) -> ProtocolInfo:
        """The protocol with machines that report to this oracle."""
        oracle = self

        class Watched(CausalOrdering):
            def _process(self, copy: Copy, *args: Any) -> None:
                machine = oracle.machines[self.here.name]
                oracle.processing(machine, copy)
                super()._process(copy, *args)
                oracle.compare(machine)

        watched = with_parts(machine, ordering=Watched)

        def build(place: Place, options: Any) -> Locamu:
            built = self.machines[place.node] = watched(place, options)
            return built

        return msgspec.structs.replace(LOCAMU, build=build)

    # While it runs

    def processing(self, machine: Locamu, copy: Copy) -> None:
        message, node = copy.message, machine.place.node
        if copy.forwarder == NOBODY:
            self.pasts[message.id] = set(self.known[node])
            self._address(machine, copy)
        if message.id in self.processed[node]:
            raise OracleError(f"{node} processes {message.id} twice")
        if node not in self.routed[message.id]:
            raise OracleError(f"{node} processes {message.id}, which is not for it")
        missing = {m for m in self.pasts[message.id] if node in self.routed[m]} - self.processed[node]
        if missing:
            raise OracleError(f"{node} processes {message.id} before {sorted(missing)}")
        self._check_date(node, copy)
        self.known[node] |= self.pasts[message.id] | {message.id}
        self.processed[node].add(message.id)

    def _check_date(self, node: NodeId, copy: Copy) -> None:
        """LCM-E5, LCM-V3, LCM-V6: nothing by an older list or tree comes after the word that nothing will."""
        message, (view, epoch) = copy.message, from_tag(copy.epoch)
        if epoch < self.stable[node, message.topic] or view < self.settled[node]:
            raise OracleError(f"{node} processes {message.id} by a list or a tree that is out of date")
        match decode(message.payload) if is_internal(message.topic) else None:
            case Stable(topic, stable):
                self.stable[node, topic] = max(stable, self.stable[node, topic])
            case Settled(number):
                self.settled[node] = number
            case _:
                pass

    def _address(self, machine: Locamu, copy: Copy) -> None:
        """Everybody who has to process the message, and who has to deliver it, by its tag alone."""
        message = copy.message
        view, epoch = from_tag(copy.epoch)
        tree = machine.tables.tree(view)
        if message.topic == EVERYBODY:
            members = frozenset(tree.present())
        elif is_internal(message.topic):
            members = frozenset((tree.rank[addressee(message.topic)],))
        else:
            members = machine.tables.members(message.topic, epoch) or frozenset()
            self.owed[message.id] = frozenset(tree.nodes[member] for member in members)
        audience = tree.audience(members)
        depth = {machine.here.me: 0}
        todo = [machine.here.me]
        for here in todo:
            for there in tree.near[here]:
                off = 0 if tree.leads_to(here, there, audience) else depth[here] + 1
                if there not in depth and off <= machine.here.radii.shadow:
                    depth[there] = off
                    todo.append(there)
        self.routed[message.id] = frozenset(tree.nodes[node] for node in depth)

    def compare(self, machine: Locamu) -> None:
        for topic, known in machine.tables.lists.items():
            for epoch, members in known.items():
                if self.lists.setdefault((topic, epoch), members) != members:
                    raise OracleError(f"{machine.place.node} has another list {epoch} of {topic}")

    # At the end

    def finish(self, delivered: Counter[tuple[str, str]]) -> None:
        for message, members in self.owed.items():
            for node in sorted(members):
                if delivered[node, message] != 1:
                    raise OracleError(f"{node} delivered {message} {delivered[node, message]} times")
        for node, message in delivered:
            if node not in self.owed[message]:
                raise OracleError(f"{node} delivered {message}, which went by a list without it")
        for node, machine in self.machines.items():
            self._check_rest(node, machine)

    def _check_rest(self, node: NodeId, machine: Locamu) -> None:
        if machine.entrance.status not in {INSIDE, GONE, OUTSIDE} or machine.entrance.knocking:
            raise OracleError(f"{node} never got in or out: {machine.entrance.status}")
        self.counts["joined"] += machine.place.parent is not None and machine.entrance.status != OUTSIDE
        self.counts["left"] += machine.entrance.status == GONE
        if machine.entrance.status != INSIDE:
            return
        self.counts["lists"] += len(machine.tables.stable) if not machine.here.me else 0
        left = (
            machine.store.entries,
            machine.held.copies,
            machine.groups.requests,
            machine.views.owed,
            machine.owner.awaited,
            machine.announcements.unsent,
        )
        if any(left):
            raise OracleError(f"{node} is not at rest: {left}")
        stale = {topic: sorted(known) for topic, known in machine.tables.lists.items() if len(known) > 1}
        if stale or machine.tables.settled != machine.tables.view:
            raise OracleError(f"{node} keeps what is out of date: {stale}")


# Scenarios


def swarm_scenario(seed: int, f: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "locamu-dynamic", f)
    edges, later = _tree(dice, f)
    nodes = list(dict.fromkeys(node for edge in edges for node in edge))
    early = [node for node in nodes if node not in later]
    topics = {f"t{i}": dice.sample(early, dice.below(len(early) + 1)) for i in range(2 + dice.below(2))}
    if not any(topics.values()):
        topics["t0"] = early[:1]  # Else nobody may ever be subscribed, and nothing is proven.
    leaving = _leaving(dice, edges, nodes)
    return parse_scenario(
        {
            "name": f"locamu-dynamic-{f}-{seed}",
            "overlay": {"kind": "edges", "edges": edges, "tree": True},
            "protocol": "locamu",
            "options": drawn_options(dice, seed, f),
            "duration_ms": DURATION_MS,
            "groups": {"kind": "explicit", "members": topics},
            "link": _link(dice),
            "detector": {"delay_ms": dice.pick([1, 20, 60])},
            "workload": _workload(dice, nodes, later, leaving, list(topics)),
            "fault": [*_changes(later, leaving), *_faults(dice, nodes, later), *_doubts(dice, edges, later)],
            "trace": {"record": "app"},
        }
    )


def _tree(dice: Dice, f: int) -> tuple[list[list[str]], dict[str, float]]:
    """A random tree, long enough for f, and when its youngest leaves join."""
    count, joins = 5 + dice.below(6), dice.below(4)
    edges = [[f"n{i}", f"n{i + 1}"] for i in range(f + 1)]
    edges += [[f"n{dice.below(i)}", f"n{i}"] for i in range(f + 2, count)]
    later: dict[str, float] = {}
    for i in range(joins):
        under = dice.pick([f"n{dice.below(count)}", *later])
        name = f"x{i}"
        edges.append([under, name])
        later[name] = dice.between(0, DURATION_MS * 0.5)
    return edges, later


def _leaving(dice: Dice, edges: list[list[str]], nodes: list[str]) -> dict[str, float]:
    """Leaves of the whole tree, but not the first node: from when on each is leaving."""
    degree = Counter(node for edge in edges for node in edge)
    leaves = [node for node in nodes[1:] if degree[node] == 1]
    return {node: dice.between(DURATION_MS * 0.2, DURATION_MS * 0.8) for node in leaves if dice.chance(0.3)}


def _changes(later: dict[str, float], leaving: dict[str, float]) -> list[dict[str, Any]]:
    joins = [{"kind": "join", "node": node, "at_ms": at} for node, at in later.items()]
    return joins + [
        {"kind": "leave", "node": node, "at_ms": max(at, later.get(node, 0.0) + 1)} for node, at in leaving.items()
    ]


def _link(dice: Dice) -> dict[str, Any]:
    latency: Any = dice.pick([5.0, {"kind": "uniform", "low_ms": 1, "high_ms": 40}])
    return {
        "latency_ms": latency,
        "fifo": dice.chance(0.3),
        "loss": dice.pick([0, 0, 0.05, 0.15]),
        "duplicate": dice.pick([0, 0, 0.05, 0.15]),
    }


def _workload(
    dice: Dice, nodes: list[str], later: dict[str, float], leaving: dict[str, float], topics: list[str]
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for _ in range(10 + dice.below(40)):
        node, at = dice.pick(nodes), dice.between(0, DURATION_MS * 0.9)
        if at < leaving.get(node, DURATION_MS) and at > later.get(node, 0):
            steps.append({"node": node, "topic": dice.pick(topics), "payload_bytes": 8, "at_ms": at})
    for node, at in later.items():
        if dice.chance(0.6) and at + 1 < leaving.get(node, DURATION_MS):
            steps.append({"node": node, "topic": dice.pick(topics), "payload_bytes": 8, "at_ms": at + 1})
    for _ in range(3 + dice.below(12)):
        node, at = dice.pick(nodes), dice.between(0, DURATION_MS * 0.9)
        if at < leaving.get(node, DURATION_MS):
            do = dice.pick(["subscribe", "subscribe", "unsubscribe"])
            steps.append({"node": node, "do": do, "topic": dice.pick([*topics, "new"]), "at_ms": at})
    staying = [node for node in nodes if node not in later and node not in leaving]
    load: dict[str, Any] = {"kind": "reply", "probability": 0.3, "publishers": staying, "topics": topics, "limit": 40}
    return [{"kind": "schedule", "steps": steps}, {**load, "payload_bytes": 8}]


def _faults(dice: Dice, nodes: list[str], later: dict[str, float]) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = []
    for node in dice.sample(nodes, dice.below(4)):
        start = dice.between(later.get(node, 0), DURATION_MS * 0.7) + 0.1  # Who is down is not told to join.
        end, survive = start + dice.between(1, DURATION_MS * 0.25), dice.pick(["all", "none", "random"])
        faults.append({"kind": "crash", "node": node, "at_ms": start, "recover_ms": end, "survive": survive})
    for _ in range(dice.below(6)):
        start = dice.between(0, DURATION_MS * 0.7)
        until = start + dice.between(1, DURATION_MS * 0.3)
        faults.append({"kind": "suspicion", "node": dice.pick(nodes), "at_ms": start, "until_ms": until})
    return faults


def _doubts(dice: Dice, edges: list[list[str]], later: dict[str, float]) -> list[dict[str, Any]]:
    """New leaves that suspect their parents, so that their first messages jump over them."""
    doubts: list[dict[str, Any]] = []
    for under, node in edges:
        if node in later and dice.chance(0.4):
            until = later[node] + dice.between(100, DURATION_MS * 0.5)
            doubts.append({"kind": "suspicion", "node": under, "by": node, "at_ms": later[node], "until_ms": until})
    return doubts


def judge_seed(seed: int, f: int, out: Path, machine: type[Locamu] = Locamu) -> tuple[Verdict, Oracle]:
    """Run and judge; raises what the oracle or a machine finds wrong."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    oracle = Oracle()
    simulate(swarm_scenario(seed, f), oracle.protocol(machine), seed=seed, out=out)
    rows = pq.read_table(out / "events", columns=["node", "kind", "msg"]).to_pylist()
    oracle.finish(Counter((row["node"], row["msg"]) for row in rows if row["kind"] == "deliver"))
    (verdict,) = judge_path(out)
    return verdict, oracle


def main() -> int:
    parser = swarm_parser(__doc__)
    parser.add_argument("--f", type=int, default=1)
    arguments = parser.parse_args()
    f = arguments.f

    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        verdict, oracle = judge_seed(seed, f, out)
        wrong, counts = judged(verdict)
        processed = sum(map(len, oracle.processed.values()))
        return wrong, counts + oracle.counts + Counter(processed=processed)

    return run_seeds(arguments, [Family(f"f = {f}", attempt, partial(swarm_scenario, f=f), f"--f {f}")])


if __name__ == "__main__":
    sys.exit(main())
