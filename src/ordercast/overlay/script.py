"""A sampling that follows a script: the neighbours of a fixed graph, and links that open and close when it says so.

For counterexamples and experiments with few links. A line of the script is `NODE opens PEER at MS`, optionally with
`via NODE`, or `NODE closes PEER at MS`. Names are those of nodes, which are their addresses in a simulation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable
from typing import ClassVar, NamedTuple

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Origin, origin_of, publisher_of
from ordercast.overlay.sampling import Contact, Sampler, SamplerWires

_LINE = re.compile(r"(\S+) (opens|closes) (\S+) at (\d+(?:\.\d+)?)(?: via (\S+))?")


class ScriptStep(NamedTuple):
    """One step of a script: what a node does at one moment."""

    node: NodeId
    opens: bool
    peer: NodeId
    at_ns: int
    via: tuple[Origin, ...]


def parse_script(lines: tuple[str, ...]) -> tuple[ScriptStep, ...]:
    """The steps, in the order of the lines; a line that makes no sense is named."""
    steps = []
    for i, line in enumerate(lines):
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise UsageError(f"script[{i}]: {line!r} is not 'NODE opens|closes PEER at MS [via NODE]'")
        node, verb, peer, at_ms, via = found.groups()
        if node == peer or (via and verb == "closes"):
            raise UsageError(f"script[{i}]: {line!r} makes no sense")
        at_ns = int(float(at_ms) * 1_000_000)
        steps.append(ScriptStep(NodeId(node), verb == "opens", NodeId(peer), at_ns, (Origin(via),) if via else ()))
    return tuple(steps)


def check_script(lines: tuple[str, ...], known: Collection[NodeId]) -> None:
    """Refuse a script that names somebody who is never there."""
    for i, step in enumerate(parse_script(lines)):
        for name in (step.node, step.peer, *map(publisher_of, step.via)):
            if name not in known:
                raise UsageError(f"options.script[{i}]: {unknown_name('node', name, known)}")


class ScriptSampler(Sampler):
    """Everybody is in its first life; lost neighbours are not looked for."""

    constant: ClassVar[tuple[str, ...]] = (*Sampler.constant, "steps")

    def __init__(self, wires: SamplerWires, me: Contact, script: tuple[ScriptStep, ...]) -> None:
        super().__init__(wires, me)
        self.steps = tuple(step for step in script if step.node == publisher_of(me.pid))
        self.neighbours: set[str] = set()
        self.done = 0
        """How many steps of its script are behind it."""

    def on_start(self, addresses: tuple[str, ...]) -> None:
        self.neighbours = set(addresses)
        for address in sorted(addresses):
            if self.me.address < address:
                self.wires.meet(address)
        self._plan()

    def on_joined(self, contact: Contact, addresses: tuple[str, ...]) -> None:  # noqa: ARG002
        self.neighbours = {contact.address}
        self.wires.want(contact)
        self._plan()

    def on_met(self, peer: Contact, *, dialed: bool) -> None:  # noqa: ARG002
        if peer.address in self.neighbours:
            self.wires.want(peer)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, int)
        step = self.steps[name]
        self.done += 1
        peer = Contact(origin_of(step.peer, 0), step.peer)
        if step.opens:
            self.neighbours.add(step.peer)
            self.wires.want(peer, step.via)
        else:
            self.neighbours.discard(step.peer)
            self.wires.unwant(peer.pid)
        self._plan_next()

    def _plan(self) -> None:
        self._plan_next()

    def _plan_next(self) -> None:
        """One step after the other, so that an explorer may let each of them happen whenever it likes."""
        if self.done < len(self.steps):
            before = self.steps[self.done - 1].at_ns if self.done else 0
            self.wires.set_timer(self.done, max(0, self.steps[self.done].at_ns - before))
