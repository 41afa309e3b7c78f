"""The shortest story of a violation: who did what, at which place of its own history, and what that contradicts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ordercast.verify.build import BEFORE_BY_CLOCK, DUPLICATE, EARLY, INVENTED, REPUBLISHED
from ordercast.verify.kernels import acyclic, happened, lines, total
from ordercast.verify.kernels.grouping import group
from ordercast.verify.kernels.jit import NEVER
from ordercast.verify.keys import hot_keys
from ordercast.verify.tasks import queues_by_topic, queues_of
from ordercast.verify.verdict import ONE_ORDER, WITHOUT_PLACE, Witness, WitnessEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ordercast.verify.columns import Columns
    from ordercast.verify.kernels.jit import Ints, Offsets

STARTS = 1000
"""Messages from which a shortest cycle is sought; with more of them stuck, a short one is found long before."""


Cycle = tuple[list[int], list[int]]
"""Messages, and for each the receiver that delivered it before the next one."""
Cycles = dict[tuple[str, int], Cycle]
"""By check, and for `total` by key (else 0)."""


def witnesses(
    columns: Columns, check: str, findings: list[tuple[int, ...]], cycles: Cycles | None = None
) -> list[Witness]:
    """The findings of one check as stories. `cycles` are those that are known already."""
    teller = _Teller(columns, cycles or {})
    if not findings:
        return []
    if (check, 0) in teller.cycles and check in WITHOUT_PLACE:
        return [teller.with_events(teller.around, (check, *teller.cycles[check, 0]))]
    if check == "acyclic":  # Its findings are the messages that no order can place; one cycle explains them.
        return [teller.with_events(teller.cycle, (check, *queues_of(columns.arrays, check)[:2]))]
    if check in ("total-topic", ONE_ORDER):
        return [teller.with_events(teller.cycle, (check, *queues_by_topic(columns.arrays, check)))]
    tell: dict[str, Callable[..., Witness]] = {
        "integrity": teller.integrity,
        "agreement": teller.agreement,
        "fifo": teller.fifo,
        "causal": teller.causal,
        "optimistic-causal": teller.optimistic,
        "total": teller.total,
        "prefix": teller.prefix,
        "convergence": teller.convergence,
        "genuine": teller.genuine,
        "real-time": teller.real_time,
    }
    return [teller.with_events(tell[check], finding) for finding in findings]


class _Teller:
    """Turns the numbers of one run into names and sentences."""

    def __init__(self, columns: Columns, cycles: Cycles) -> None:
        self.columns = columns
        self.cycles = cycles
        self.arrays = columns.arrays
        self._told: dict[WitnessEvent, None] = {}

    def with_events(self, tell: Callable[..., Witness], finding: tuple[Any, ...]) -> Witness:
        """The story of a finding, and beside it what it tells of as events."""
        self._told = {}
        witness = tell(*finding)
        witness.events = list(self._told)
        witness.wrong = witness.wrong or (witness.messages[0] if witness.messages else "")
        return witness

    def _note(self, kind: str, node: str, m: int, seq: int | None) -> None:
        self._told[WitnessEvent(node, kind, self.message(m), seq)] = None

    def _note_publication(self, m: int) -> None:
        if m < self.arrays.pub.size and self.arrays.pub[m] >= 0:  # Nobody published what was invented.
            self._note("publish", self.node(int(self.arrays.pub[m])), m, int(self.arrays.pub_seq[m]))

    def message(self, m: int) -> str:
        return str(self.columns.names.messages[m].as_py())

    def node(self, receiver: int) -> str:
        return str(self.columns.names.nodes[int(self.arrays.node[receiver])].as_py())

    def delivered_at(self, receiver: int, m: int) -> int | None:
        """Place in the node's own history where it delivered m, if it did."""
        begin, end = self.arrays.off[receiver : receiver + 2]
        found = np.flatnonzero(self.arrays.ev[begin:end] == m)
        at = int(self.arrays.seq[begin + found[0]]) if found.size else None
        self._note("deliver", self.node(receiver), m, at)
        self._note_publication(m)
        return at

    def published(self, m: int) -> str:
        self._note_publication(m)
        return f"{self.node(int(self.arrays.pub[m]))} published {self.message(m)} (seq {self.arrays.pub_seq[m]})"

    def delivery(self, receiver: int, m: int) -> str:
        at = self.delivered_at(receiver, m)
        name = self.message(m)
        return f"never delivered {name}, which it had to" if at is None else f"delivered {name} (seq {at})"

    def integrity(self, m: int, receiver: int, seq: int, kind: int) -> Witness:
        node, name = self.node(receiver), self.message(m)
        did = f"{node} delivered {name} (seq {seq})"
        if kind != REPUBLISHED:
            self._note("deliver", node, m, seq)
        if kind == INVENTED:
            story = [f"{did}, which nobody published"]
        elif kind == REPUBLISHED:
            story = [self.published(m), f"{node} published {name} again (seq {seq})"]
        elif kind == DUPLICATE:
            story = [f"{node} delivered {name} (seq {self.delivered_at(receiver, m)})", f"{did} again"]
        elif kind == EARLY:
            story = [did, f"but {self.published(m)} only after that, causally"]
        elif kind == BEFORE_BY_CLOCK:
            story = [did, f"but {self.published(m)} only later, by the clock of all nodes"]
        else:
            story = [f"{self.published(m)} for {self._audience(m)}", f"{did}, but it was no subscriber"]
        return Witness("integrity", node, [name], story)

    def _audience(self, m: int) -> str:
        topic = int(self.arrays.topic[m])
        named = topic < len(self.columns.names.topics)
        return f"topic {self.columns.names.topics[topic].as_py()}" if named else "its destinations"

    def agreement(self, m: int, receiver: int) -> Witness:
        node, name = self.node(receiver), self.message(m)
        others = np.flatnonzero(self.arrays.ev == m)
        story = [self.published(m)]
        if others.size:
            other = int(np.searchsorted(self.arrays.off, others[0], side="right")) - 1
            story.append(f"{self.node(other)} {self.delivery(other, m)}")
        self._note("deliver", node, m, None)
        begin, end = self.arrays.missed_off[receiver : receiver + 2]
        entry = begin + int(np.flatnonzero(self.arrays.missed[begin:end] == m)[0])
        if self.arrays.asked[entry]:
            stayed = "is up at the end" if self.arrays.due[entry] == NEVER else "stayed to its own end of the run"
            story.append(f"{node} was a subscriber before the publication, {stayed}, and never delivered {name}")
        else:
            story.append(f"{node} owed {name}, delivered what comes after it, and went without having delivered it")
        return Witness("agreement", node, [name], story)

    def fifo(self, m: int, receiver: int, skipped: int) -> Witness:
        node = self.node(receiver)
        self._note_publication(m)
        story = [
            f"{self.published(skipped)} and then {self.message(m)} (seq {self.arrays.pub_seq[m]})",
            f"{node} {self.delivery(receiver, m)} but {self._late(receiver, skipped)}",
        ]
        return Witness("fifo", node, [self.message(skipped), self.message(m)], story)

    def _late(self, receiver: int, m: int) -> str:
        at = self.delivered_at(receiver, m)
        return self.delivery(receiver, m) if at is None else f"{self.message(m)} only later (seq {at})"

    def causal(self, m: int, receiver: int, _latest: int) -> Witness:
        return self._causal("causal", m, receiver)

    def optimistic(self, m: int, receiver: int, _latest: int) -> Witness:
        return self._causal("optimistic-causal", m, receiver)

    def _causal(self, check: str, m: int, receiver: int) -> Witness:
        arrays = self.arrays
        position = np.full(arrays.messages, -1, np.int32)
        held = arrays.held(check) != 0
        log = arrays.ev[arrays.off[receiver] : arrays.off[receiver + 1]]
        position[log[log >= 0]] = np.flatnonzero(log >= 0)
        if check == "causal":
            mine = slice(*arrays.missed_off[receiver : receiver + 2])
            position[arrays.missed[mine]] = np.where(arrays.due[mine] > position[m], NEVER, -1)
        position[~held] = -1
        chain = self._chain(m, position)
        names = [self.message(int(link)) for link in chain]
        node = self.node(receiver)
        story = [
            f"{node} {self.delivery(receiver, m)} but {self._late(receiver, int(chain[0]))}",
            f"although {' -> '.join(names)}:",
        ]
        story += [self._arrow(int(a), int(b)) for a, b in pairwise(chain)]
        return Witness(check, node, names, story)

    def _chain(self, m: int, position: Ints) -> Ints:
        """The fewest messages m1 -> ... -> m such that m1 is delivered after m, or never."""
        arrays = self.arrays
        logs = arrays.log, arrays.log_off, arrays.chain, arrays.at
        if self.columns.about.order_scope == "session":
            return happened.shortest_chain(*logs, m, position, int(position[m]))
        member_off, entries = group(arrays.lines, int(arrays.lines.max()) + 1)
        members = np.searchsorted(arrays.line_off, entries, side="right") - 1
        by_line = arrays.line_off, arrays.lines, member_off, members
        return lines.shortest_chain_by_line(*logs, *by_line, m, position, int(position[m]))

    def _arrow(self, earlier: int, later: int) -> str:
        """Why `earlier` happened before `later`: its publisher had published or delivered it."""
        publisher = int(self.arrays.pub[later])
        self._note_publication(later)
        then = f"and then published {self.message(later)} (seq {self.arrays.pub_seq[later]})"
        if self.arrays.pub[earlier] == publisher and self._share_a_line(earlier, later):
            return f"{self.published(earlier)} {then}"
        return f"{self.node(publisher)} {self.delivery(publisher, earlier)} {then}"

    def _share_a_line(self, earlier: int, later: int) -> bool:
        off, of = self.arrays.line_off, self.arrays.lines
        return bool(np.isin(of[off[earlier] : off[earlier + 1]], of[off[later] : off[later + 1]]).any())

    def total(self, m: int, receiver: int, key: int, kind: int, sync: int, other: int) -> Witness:
        if kind == total.CYCLE and ("total", key) in self.cycles:
            return self.around("total", *self.cycles["total", key])
        if kind == total.CYCLE:
            return self.cycle("total", *self._queues_of_key(key))
        node, name, point = self.node(receiver), self.message(m), self.message(sync)
        shared = str(self.columns.names.keys[key].as_py())
        story = [
            f"{point} is total and shares {f'key {shared!r}' if shared else 'its topic'} with {name}",
            f"{self.node(other)} {self.delivery(other, m)} before {point} (seq {self.delivered_at(other, sync)})",
            f"{node} {self.delivery(receiver, sync)} but {self._late(receiver, m)}",
        ]
        return Witness("total", node, [name, point], story)

    def _queues_of_key(self, key: int) -> tuple[Ints, Offsets]:
        """The total messages of a key, per receiver in its order."""
        arrays = self.arrays
        place = int(np.searchsorted(hot_keys(arrays), key))
        renumbered = np.full(arrays.key_topic.size, -1, np.int32)
        renumbered[hot_keys(arrays)[place]] = 0
        _, receiver, message, _ = total.deliveries_by_key(
            arrays.ev, arrays.off, arrays.key_off, renumbered[arrays.keys], 0, 1
        )
        synchronises = arrays.held("total")[message] != 0
        counts = np.bincount(receiver[synchronises], minlength=arrays.receivers)
        return message[synchronises], np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    def cycle(self, check: str, queue: Ints, queue_off: Offsets, owners: Ints | None = None) -> Witness:
        """The cycle with the fewest queues; `owners` are their receivers, if it is not one each."""
        messages, queues = fewest_in_a_cycle(queue, queue_off, self.arrays.messages)
        return self.around(check, messages, queues if owners is None else owners[queues].tolist())

    def around(self, check: str, messages: list[int], receivers: list[int]) -> Witness:
        """The story of a cycle."""
        story = []
        for i, receiver in enumerate(receivers):
            a, b = messages[i], messages[(i + 1) % len(messages)]
            first, second = self.delivered_at(receiver, a), self.delivered_at(receiver, b)
            node = self.node(receiver)
            story.append(f"{node} delivered {self.message(a)} (seq {first}) before {self.message(b)} (seq {second})")
        return Witness(check, self.node(receivers[0]), [self.message(m) for m in messages], story)

    def prefix(self, m: int, receiver: int, other: int, against: int) -> Witness:
        node = self.node(receiver)
        story = [
            f"{node} {self.delivery(receiver, against)} but {self._not_before(receiver, m)}",
            f"{self.node(other)} {self.delivery(other, m)} but {self._not_before(other, against)}",
            "both were addressed by both messages",
        ]
        return Witness("prefix", node, [self.message(against), self.message(m)], story, wrong=self.message(m))

    def _not_before(self, receiver: int, m: int) -> str:
        at = self.delivered_at(receiver, m)
        return f"never {self.message(m)}" if at is None else f"{self.message(m)} only later (seq {at})"

    def real_time(self, m: int, receiver: int, earlier: int) -> Witness:
        first = int(self.arrays.first_by[earlier])
        at_ns, published_ns = int(self.arrays.first_ns[earlier]), int(self.arrays.published_ns[m])
        node = self.node(receiver)
        story = [
            f"{self.node(first)} {self.delivery(first, earlier)} at {at_ns} ns, before anybody else",
            f"{self.published(m)} at {published_ns} ns, after that",
            f"{node} {self.delivery(receiver, m)} but {self._late(receiver, earlier)}",
        ]
        return Witness("real-time", node, [self.message(earlier), self.message(m)], story)

    def convergence(self, different: int, reference: int) -> Witness:
        one, two = self.columns.about.digests[reference], self.columns.about.digests[different]
        of = f" of topic {one.topic}" if one.topic else ""
        story = [f"{d.node} ended with the digest {d.digest}{of} (seq {d.seq})" for d in (one, two)]
        return Witness("convergence", two.node, [], story)

    def genuine(self, m: int, node: int, seq: int) -> Witness:
        name = str(self.columns.names.nodes[node].as_py())
        handled = f"{name} handled {self.message(m)} (seq {seq}), which was not for it"
        return Witness("genuine", name, [self.message(m)], [self.published(m), handled])


def fewest_in_a_cycle(queue: Ints, queue_off: Offsets, messages: int) -> Cycle:
    """Of queues that fit into no one order: a cycle through the fewest of them, as messages and queues."""
    *_, (_, best) = fewer_and_fewer(queue, queue_off, messages)
    return best


def fewer_and_fewer(queue: Ints, queue_off: Offsets, messages: int) -> Iterator[tuple[int, Cycle]]:
    """Cycles of queues that fit into no one order, as messages and queues, each with the message it was sought from.

    Sought from one stuck message after the other; each goes through fewer queues than the one before.
    """
    no_debts = np.zeros_like(queue_off), np.empty(0, np.int32)
    rank = acyclic.ranks(queue, queue_off, messages, *no_debts)
    index = acyclic.occurrences(queue, queue_off, messages)
    least = queue.size + 1
    for origin in np.flatnonzero(rank < 0)[:STARTS].tolist():
        found, queues = acyclic.shortest_cycle(queue, queue_off, *index, origin, least)
        if found.size:
            least = found.size
            yield origin, (found.tolist(), queues.tolist())
        if least <= 2:
            return
    assert least <= queue.size, "a stuck message without a cycle"
