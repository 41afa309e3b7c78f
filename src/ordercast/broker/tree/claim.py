"""The claim to be root that a broker has made, and who has agreed to it so far (BRK-O12, BRK-O14)."""

from __future__ import annotations

from ordercast.broker.ports import Ages
from ordercast.broker.tree.tree_state import MS, NOBODY, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection


class RootClaim(TreePart):
    """This broker's claim to be root, at most one. `Election` decides on it; `Seeking` gives it up for a parent."""

    def __init__(self, state: TreeState) -> None:
        super().__init__(state)
        self.running: int | None = None
        """The term number that it claims."""
        self.spent_ns = 0
        """How long claims took in this repair, for the record."""
        self.made_ns = 0
        self.awaited: dict[NodeId, Connection] = {}
        self.agreed: set[NodeId] = set()
        self.helped_ns = 0
        """How long a lease those who agreed have helped to give, beyond what was configured."""
        self.somebody_before = False
        """Whether somebody who agreed remembers an earlier term."""
        self.absent_of = 0
        """The latest term whose root has told somebody who agreed who is absent."""
        self.absent: Ages = {}
        """Since when, in nanoseconds: whoever any of those that it told does not know of has come back."""
        self._outdated = 0
        """How many claims of this search had a number that was promised to another one."""
        self._pointed_to: NodeId = NOBODY
        """Who last said that there is a root: asked at once, but not again and again without a pause."""

    def make(self, number: int) -> None:
        self.running = number
        self.made_ns = self.wires.now_ns
        self.agreed = {self.state.node}
        self.somebody_before = number > 1
        self.helped_ns = 0
        self.absent_of = 0
        self.wires.set_timer(("election",), int(self.settings.request_ms * MS))
        self.awaited = {}

    def agrees(self, node: NodeId, *, remembers_a_term: bool, helped_ns: int) -> None:
        self.agreed.add(node)
        self.helped_ns = max(self.helped_ns, helped_ns)
        del self.awaited[node]
        self.somebody_before = self.somebody_before or remembers_a_term

    def hears_of_absent(self, number: int, ages: Ages) -> None:
        """BRK-M10: an elector was told this by the root of the term of that number."""
        now = self.wires.now_ns
        since = {topic: {who: now - age_ms * MS for who, age_ms in of.items()} for topic, of in ages.items()}
        if number > self.absent_of:
            self.absent_of, self.absent = number, since
        elif number == self.absent_of:
            self.absent = {
                topic: {who: max(first, since[topic][who]) for who, first in of.items() if who in since[topic]}
                for topic, of in self.absent.items()
                if topic in since
            }

    def abandon(self) -> None:
        if self.running is not None:
            self.spent_ns += self.wires.now_ns - self.made_ns
            self.running = None
            self.awaited = {}
            self.wires.cancel_timer(("election",))

    def forget(self) -> None:
        """Begin counting anew, because a new search begins."""
        self.spent_ns = 0
        self._outdated = 0
        self._pointed_to = NOBODY

    def newly_outdated(self) -> bool:
        """Somebody has promised the number to another one; whether that is the first time in this search."""
        self._outdated += 1
        return self._outdated == 1

    def newly_points_to(self, node: NodeId) -> bool:
        """A broker says that it is root; whether another one said so last."""
        before, self._pointed_to = self._pointed_to, node
        return node != before

    def wait_no_longer(self) -> None:
        self.awaited = {}

    def awaits(self, line: Connection) -> bool:
        return line in self.awaited.values()
