"""A broker that has lived before and kept nothing does not know what it has promised (PC8).

Its word must not count for an old root if its former life gave it to a new one. Whoever was elected with that word was
a claimant already, and so were those who gave theirs too. So it asks everybody for the highest term number they know,
and counts again when more than half have answered from memory, or all have answered: then the claimant is among them,
or has itself begun a new life and is no root any more. (At the first start of a whole cluster all answer at once.)
If so many cannot be reached it counts again after `request_ms + lease_ms`, when that election must be over and its root
has had a lease's time to make itself known. A broker with a data directory remembers and needs none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.tree.tree_state import MS
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import Recall, Recalled

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay


class Recollection(State):
    """Who has told what it remembers."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay, *, remembers: bool) -> None:
        self.overlay = overlay
        self._remembers = remembers or not overlay.primary
        self._until_ns = 0
        self._from_memory: set[NodeId] = set()
        self._answered: set[NodeId] = set()

    @property
    def forgetful(self) -> bool:
        """It neither gives its word nor stands behind a root."""
        return not self._remembers

    def start(self) -> None:
        if self.forgetful:
            settings = self.overlay.settings
            self._until_ns = self.overlay.wires.now_ns + int((settings.request_ms + settings.lease_ms) * MS)
            self.ask()

    def ask(self) -> None:
        """Until it knows enough, again and again: others may still be starting."""
        overlay = self.overlay
        self._check()
        if self._remembers:
            return
        for node in overlay.others():
            if node not in self._answered:
                overlay.neighbours.say(node, Recall())
        overlay.wires.set_timer(("recall",), overlay.draw_retry_ns())

    def asked(self, line: Connection) -> None:
        overlay = self.overlay
        highest = max(overlay.term[0], overlay.election.promised)
        overlay.wires.send(line, Recalled(highest, self.forgetful))

    def answered(self, node: NodeId, packet: Recalled) -> None:
        if self._remembers:
            return
        self.overlay.election.learn_of(packet.highest)
        self._answered.add(node)
        if not packet.forgetful:
            self._from_memory.add(node)
        self._check()

    def _check(self) -> None:
        overlay = self.overlay
        everybody = self._answered >= set(overlay.others())
        if everybody or overlay.is_majority(self._from_memory) or overlay.wires.now_ns >= self._until_ns:
            self._remembers = True
            overlay.wires.cancel_timer(("recall",))
            overlay.lease.answer()
