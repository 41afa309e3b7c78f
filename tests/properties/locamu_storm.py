"""A storm of small LoCaMu runs at the level of single packets: any order, any loss, any suspicion at any time.

    python -m tests.properties.locamu_storm --seeds 1000 --f 2

Harsher than a network: nothing connects suspicions with crashes, and copies arrive in any order or never. After every
step the oracle knows what each node has processed and checks causal order hop by hop (LCM-N7), at nodes that only pass
messages on, too; at the end, with everybody trusted, nothing may be missing and everything must be forgotten.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Data
from tests.properties.swarm import Dice
from tests.support.locamu_lab import TreeGroup, line

NAMES = "0123456789abcdef"


class CausalityError(AssertionError):
    """Somebody processed a message before one that it follows from."""


class Storm:
    """One seeded run."""

    def __init__(self, seed: int, f: int, protocol: str | ProtocolInfo = "locamu", **options: Any) -> None:
        self.dice = dice = Dice(seed, "storm", f)
        self.hurry = Dice(seed, "storm, timers that do not wait for packets", f)
        self.edges = _edges(dice, f)
        nodes = sorted(set(self.edges.replace(" ", "")))
        groups = {"".join(sorted(dice.sample(nodes, 1 + dice.below(len(nodes))))) for _ in range(2 + dice.below(3))}
        self.topics = sorted(groups)
        chosen = {"f": f, "delta": dice.chance(0.5), "push_ms": seed % 2, **options}
        self.group = TreeGroup(self.edges, " ".join(self.topics), protocol=protocol, **chosen)
        self.pasts: dict[str, set[str]] = {}
        """Of each message, those that precede it."""
        self.known: dict[NodeId, set[str]] = {node: set() for node in self.group.nodes}
        """Of each node, what it has processed and what precedes that."""
        self.seen = dict.fromkeys(self.group.nodes, 0)
        self.routed: dict[str, set[NodeId]] = {}
        self.messages: list[Message] = []
        self.pasts_of_nodes: dict[NodeId, dict[int, int]] = {node: {} for node in self.group.nodes}

    def run(self) -> None:
        dice = self.dice
        loss, toggles = dice.between(0.05, 0.25), dice.between(0.1, 0.35)
        budget = 4 + dice.below(9)
        for _ in range(60 + dice.below(120)):
            if dice.chance(toggles):
                self._toggle()
            if budget and dice.chance(0.15):
                budget -= 1
                self._publish()
            if dice.chance(0.03):
                self._restart()
            if self.hurry.chance(0.1):
                self._fire(self.hurry)
            if self.group.in_flight:
                self._carry(loss)
            elif dice.chance(0.5):
                self._fire(dice)
            self._look()
            self._check_invariants()
        self.group.finish()
        self._look()
        self._check_end()

    def _toggle(self) -> None:
        group, dice = self.group, self.dice
        node = dice.pick(group.nodes)
        peer = group.nodes[dice.pick(group.machine(node).here.linked)]
        suspected = group.routes.rank[peer] in group.machine(node).here.suspected
        (group.trust if suspected else group.suspect)(peer, by=node)

    def _publish(self) -> None:
        dice, group = self.dice, self.group
        fresh = [node for node in group.nodes if group.order[node]]
        node = dice.pick(fresh) if fresh and dice.chance(0.6) else dice.pick(group.nodes)
        message = group.publish(node, dice.pick(self.topics))
        self.messages.append(message)
        self.pasts[message.id] = set(self.known[node])
        self.routed[message.id] = self._route(message)

    def _restart(self) -> None:
        """A crash and a recovery with state: what was in flight to the node is lost."""
        node = self.dice.pick(self.group.nodes)
        self.group.crash(node)
        self.group.recover(node)

    def _carry(self, loss: float) -> None:
        group, dice = self.group, self.dice
        sender, receiver, packet = group.in_flight.pop(dice.below(len(group.in_flight)))
        if dice.chance(loss):
            return
        if dice.chance(0.05):
            group.in_flight.append((sender, receiver, packet))
        group.hand(packet, to=receiver, by=sender)

    def _fire(self, dice: Dice) -> None:
        armed = [(node, timer) for node in self.group.nodes for timer in sorted(self.group.timers[node], key=str)]
        if armed:
            self.group.fire(*dice.pick(armed))

    def _route(self, message: Message) -> set[NodeId]:
        """Everybody who has to process the message: the paths to the members and who is near enough beside them."""
        group = self.group
        routes, shadow = group.routes, group.machine(group.nodes[0]).here.radii.shadow
        start = routes.rank[message.publisher]
        depth = {start: 0}
        todo = [start]
        for here in todo:
            for there in routes.near[here]:
                if there not in depth:
                    off = 0 if routes.leads(here, there, message.topic) else depth[here] + 1
                    if off <= shadow:
                        depth[there] = off
                        todo.append(there)
        return {group.nodes[node] for node in depth}

    def _look(self) -> None:
        """LCM-N2, LCM-N7: what was processed since the last look came after everything that precedes it."""
        for node in self.group.nodes:
            order = self.group.order[node]
            for i in range(self.seen[node], len(order)):
                message = order[i]
                done = {earlier.id for earlier in order[:i]}
                if message.id in done:
                    raise CausalityError(f"{node} processed {message.id} twice")
                missing = {m for m in self.pasts[message.id] if node in self.routed[m]} - done
                if missing:
                    raise CausalityError(f"{node} processed {message.id} before {sorted(missing)}")
                if node not in self.routed[message.id]:
                    raise CausalityError(f"{node} processed {message.id}, which is not for it")
                self.known[node] |= self.pasts[message.id] | {message.id}
            self.seen[node] = len(order)

    def _check_invariants(self) -> None:
        """LCM-N2, N3, N5 and N9; LCM-N1, N8 and N10 are checked where they could break, LCM-N4 by the machine."""
        group = self.group
        for node in group.nodes:
            machine, mine = group.machine(node), {message.id for message in group.order[node]}
            for forwarder in machine.processed.gapless:
                for number in range(1, machine.processed.prefix[forwarder] + 1):
                    named = group.numbered[forwarder, machine.here.me, number]
                    assert named in mine, f"LCM-N2: {node} counts {named}, which it has not processed"
            for stream, value in self.pasts_of_nodes[node].items():
                assert machine.streams.value(stream) >= value, f"LCM-N9: the past of {node} shrank"
            past = dict(machine.streams.pairs(tuple(machine.streams.values)))
            self._check_past(node, past)
            self.pasts_of_nodes[node] = past
        for _, receiver, packet in group.in_flight:
            if isinstance(packet, Data):
                radii, rank = group.machine(receiver).here.radii, group.routes.rank
                far = group.routes.distance(rank[packet.message.publisher], rank[receiver])
                skipped = min(radii.window, far) - len(group.said(packet).vectors)
                assert skipped <= radii.f, f"LCM-N5: {packet.message.id} goes to {receiver}, {skipped} nodes skipped"

    def _check_past(self, node: NodeId, past: dict[int, int]) -> None:
        """LCM-N3: what the past counts precedes whatever the node does next."""
        before, known = self.pasts_of_nodes[node], self.group.hop_pasts.get(self.group.routes.rank[node], set())
        for stream, value in past.items():
            first, second = stream >> SECOND_BITS, stream & SECOND
            if self.group.nodes[second] == node:
                continue  # There the numbers processed count, not the past.
            for number in range(before.get(stream, 0) + 1, value + 1):
                named = self.group.numbered[first, second, number]
                assert named in known, f"LCM-N3: the past of {node} counts {named}, which does not precede"

    def _check_end(self) -> None:
        for message in self.messages:
            for node in self.routed[message.id]:
                assert message.id in {m.id for m in self.group.order[node]}, f"{node} never got {message.id}"
            for node in message.topic:
                assert message.id in {m.id for m in self.group.delivered[NodeId(node)]}
        self.group.assert_forgotten()


def _edges(dice: Dice, f: int) -> str:
    kind = dice.pick(["line", "binary", "random", "comb", "zigzag"])
    count = max(f + 2, 4) + dice.below(6)
    match kind:
        case "line":
            return line(count)
        case "binary":
            return " ".join(NAMES[(i - 1) // 2] + NAMES[i] for i in range(1, max(count, 7)))
        case "random":
            edges = [NAMES[dice.below(i)] + NAMES[i] for i in range(1, count)]
            tree = " ".join(edges)
            return tree if _longest(edges) > f else line(count)
        case "comb":
            trunk = 3 + dice.below(4)
            return " ".join([line(trunk + f - 1), *(NAMES[i] + NAMES[8 + i] for i in range(trunk))])
        case _:
            return "01 12 23 34 45 06 07 18 29 3a 4b"


def _longest(edges: list[str]) -> int:
    def far(start: str) -> tuple[int, str]:
        seen, rim, steps = {start}, [start], 0
        last = start
        while rim:
            last = rim[0]
            rim = sorted({b for e in edges for a, b in (e, e[::-1]) if a in rim and b not in seen})
            seen |= set(rim)
            steps += bool(rim)
        return steps, last

    return far(far(edges[0][0])[1])[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--f", type=int, default=1)
    parser.add_argument("--protocol", default="locamu")
    arguments = parser.parse_args()
    failed, started, processed = 0, time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        storm = Storm(seed, arguments.f, arguments.protocol, check=arguments.protocol == "locamu")
        try:
            storm.run()
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}, f = {arguments.f}, edges {storm.edges}: {str(error)[:300]}", flush=True)
        processed += sum(map(len, storm.group.order.values()))
    spent = time.monotonic() - started
    print(f"{arguments.protocol}, f = {arguments.f}: {arguments.seeds} seeds, {processed} messages processed, "
          f"{failed} failed, {spent:.1f} s")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
