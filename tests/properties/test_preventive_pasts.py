"""Local vectors (PRV-9.4): how two messages are to each other, though no header says so."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.preventive.knowing import Knowing
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import kind_of
from ordercast.scenario.load import parse_scenario
from ordercast.sim.overlays.run import live
from ordercast.sim.overlays.world import OverlayWorld

Key = tuple[str, int]
KNOWING = {"local_vectors": True, "skip_sender": False, "forget_ms": 0}
MESH = [[f"n{i}", f"n{j}"] for i, j in combinations(range(5), 2)]
RING = [[f"n{i}", f"n{(i + step) % 10}"] for i in range(10) for step in (1, 3)]


class Oracle:
    """Writes down what each publisher had delivered when it published: the definition of a causal past."""

    def __init__(self, seed: int, edges: list[list[str]], **changes: Any) -> None:
        scenario = {
            "name": "pasts", "protocol": "preventive", "overlay": {"kind": "edges", "edges": edges},
            "options": KNOWING, "duration_ms": 1500,
            "link": {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 60}},
            "workload": [
                {"kind": "open", "rate_per_s": 60, "payload_bytes": 8, "start_ms": 300},
                {"kind": "reply", "probability": 0.2, "depth": 3, "limit": 60, "payload_bytes": 8},
            ],
            **changes,
        }  # fmt: skip
        self.world = OverlayWorld(parse_scenario(scenario), lookup("preventive"), seed, None)
        self.pasts: dict[Key, set[Key]] = {}
        self._delivered: defaultdict[str, set[Key]] = defaultdict(set)
        self.world.delivery_watchers.append(self._deliver)
        self._told = self.world.processes.notes
        self.world.processes.notes = self._note
        live(self.world)

    def _note(self, name: str, kind: str, info: Any) -> None:
        """What a joiner inherits is in the pasts of its messages."""
        assert self._told is not None
        self._told(name, kind, info)
        if kind == "join":
            received = self.world.processes.machine(name).broadcast.log.received  # type: ignore[union-attr]
            self._delivered[name] |= {(o, n) for o, most in received.items() for n in range(1, most + 1)}

    def _deliver(self, node: Any, message: Message) -> None:
        key, mine = (message.origin, message.number), self._delivered[node.node]
        if message.publisher == node.node:
            self.pasts[key] = set(mine)
        mine.add(key)

    def machines(self) -> list[Knowing]:
        return [node.machine for node in self.world.nodes.values() if isinstance(node.machine, Knowing)]

    def true_relation(self, one: Key, other: Key) -> str:
        if one in self.pasts[other]:
            return "before"
        return "after" if other in self.pasts[one] else "concurrent"


def compared(oracle: Oracle) -> Counter[str]:
    """All that every process says of two messages, against the definition; what was said, counted."""
    said: Counter[str] = Counter()
    for machine in oracle.machines():
        for one, other in combinations(list(machine.broadcast.local.pasts)[:60], 2):
            told = machine.relation(one, other)
            said[told] += 1
            if told != "unknown":
                assert told == oracle.true_relation(one, other), (machine.me.pid, one, other)
    return said


@pytest.mark.parametrize("seed", range(3))
def test_on_a_full_mesh_every_past_is_exact(seed: int) -> None:
    """The link from the publisher itself carried exactly what it had delivered, in all cases."""
    oracle = Oracle(seed, MESH)
    assert compared(oracle)["unknown"] == 0
    for machine in oracle.machines():
        pasts = machine.broadcast.local.pasts
        assert len(pasts) == len(oracle.pasts) > 50
        for key, past in pasts.items():
            counts = Counter(origin for origin, _ in oracle.pasts[key])
            assert past.exact
            assert {origin: number for origin, number in past.most.items() if number} == counts


@pytest.mark.parametrize("seed", range(3))
def test_where_links_change_what_is_said_is_true_and_the_rest_is_unknown(seed: int) -> None:
    """Of messages whose publisher is no neighbour the past is known at most: that proves concurrency only."""
    options = {**KNOWING, "sampling": "spray", "period_ms": 150, "ack_ms": 500}
    faults = [{"kind": "join", "node": "n4", "at_ms": 300}, {"kind": "leave", "node": "n7", "at_ms": 700}]
    said = compared(Oracle(seed, RING, options=options, fault=faults))
    assert min(said["before"] + said["after"], said["concurrent"], said["unknown"]) > 0


@pytest.mark.parametrize("wrong", [{"skip_sender": True}, {"forget_ms": 1000}, {"memory": "links"}])
def test_where_a_link_would_not_carry_everything_it_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="local_vectors needs"):
        kind_of(PreventiveOptions(**{**KNOWING, **wrong}))


def test_a_sender_that_is_skipped_makes_pasts_wrong() -> None:
    """Why it is refused: with `skip_sender` the publisher's link does not carry what this process told it."""

    def build(wires: Any, place: Any, options: Any) -> Knowing:
        return Knowing(wires, place, options)

    import msgspec

    info = msgspec.structs.replace(lookup("preventive"), build_overlay=build)
    oracle = Oracle.__new__(Oracle)
    scenario = parse_scenario(
        {"name": "pasts", "overlay": {"kind": "edges", "edges": [["n0", "n1"]]}, "duration_ms": 500,
         "link": {"latency_ms": 5}, "options": {"forget_ms": 0}, "protocol": "preventive",
         "workload": [{"kind": "schedule", "steps": [{"node": n, "topic": "t0", "payload_bytes": 8, "at_ms": at}
                                                     for n, at in (("n0", 100), ("n1", 200))]}]}
    )  # fmt: skip
    oracle.world = OverlayWorld(scenario, info, 0, None)
    live(oracle.world)
    first = next(machine for machine in oracle.machines() if machine.me.pid == "n0")
    assert first.relation(("n0", 1), ("n1", 1)) == "concurrent", "it is before, and n0 cannot see it"
