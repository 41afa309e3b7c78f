"""The connections of a broker: who is at the other end, which one to use, and what the end of one means (BRK-O2)."""

from __future__ import annotations

from ordercast.broker.tree.events import TreeEvents
from ordercast.broker.tree.tree_state import MS, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer


class Neighbours(TreePart):
    """Connections to brokers and clients. A link is one of them that parent and child have agreed on."""

    constant = (*TreePart.constant, "events")
    ordered = ("peers", "dialing")

    def __init__(self, state: TreeState, events: TreeEvents) -> None:
        super().__init__(state)
        self.events = events
        self.peers: dict[Connection, Peer] = {}
        """Everybody at the other end of an open connection."""
        self.dialing: dict[Connection, NodeId] = {}
        """Dials under way, and who should answer (nobody in particular at a seed's address)."""
        self._own: dict[Connection, int] = {}
        """Connections that this broker dialed and when it last used them: whoever dialed closes."""
        self._sweeping = False

    # using connections

    def line_to(self, node: NodeId) -> Connection | None:
        """A connection to the broker that is open or being opened."""
        found = [line for line, peer in self.peers.items() if peer.kind == "broker" and peer.name == node]
        found += [line for line, expected in self.dialing.items() if expected == node]
        return found[0] if found else None

    def has(self, node: NodeId) -> bool:
        """Whether the broker is at the other end of an open connection."""
        return any(peer.kind == "broker" and peer.name == node for peer in self.peers.values())

    def to(self, node: NodeId) -> Connection:
        line = self.line_to(node)
        return self.dial(self.state.directory[node], node) if line is None else self._used(line)

    def dial(self, address: str, node: NodeId) -> Connection:
        line = self.wires.open(address)
        self.dialing[line] = node
        self._own[line] = self.wires.now_ns
        return self._used(line)

    def say(self, node: NodeId, packet: Packet) -> Connection | None:
        """Send directly, outside the tree; None if the broker is unknown."""
        if node not in self.state.directory:
            return None
        line = self.to(node)
        self.wires.send(line, packet)
        return line

    def _used(self, line: Connection) -> Connection:
        if line in self._own:
            self._own[line] = self.wires.now_ns
            if not self._sweeping:
                self._sweeping = True
                self._arm_sweep()
        return line

    def touched(self, line: Connection) -> None:
        """A packet arrived."""
        if line in self._own:
            self._own[line] = self.wires.now_ns

    def _arm_sweep(self) -> None:
        self.wires.set_timer(("idle",), int(self.settings.request_ms * MS), background=True)

    def sweep(self) -> None:
        """Close direct connections that nobody has used for `request_ms`."""
        idle_since = self.wires.now_ns - int(self.settings.request_ms * MS)
        links = set(self.state.links())
        for line, used in sorted(self._own.items()):
            if line in self.peers and line not in links and used <= idle_since and not self.events.in_use(line):
                self.close(line)
        self._sweeping = any(line not in links for line in self._own)
        if self._sweeping:
            self._arm_sweep()

    def close(self, line: Connection) -> None:
        """On purpose; its other end sees no death in it."""
        self._forget(line)
        self.wires.close(line)

    def _forget(self, line: Connection) -> None:
        self.peers.pop(line, None)
        self.dialing.pop(line, None)
        self._own.pop(line, None)

    # what happens to them

    def opened(self, line: Connection, peer: Peer) -> None:
        expected = self.dialing.pop(line, None)
        self.peers[line] = peer
        if peer.kind != "broker":
            return
        name = NodeId(peer.name)
        if expected and expected != name:
            # Somebody else listens there now: whoever was meant is not to be found.
            self.close(line)
            self.state.lose_reach_of(expected)
            self.events.line_ended(line, gone=True)
            return
        self.state.found(name)
        self.learn_life(name, peer.life)

    def learn_life(self, node: NodeId, life: int) -> None:
        """BRK-O18, F-NET-2: a new life of a broker ends whatever was shared with an older one."""
        if life <= self.state.lives.get(node, 0):
            return
        self.state.lives[node] = life
        for line in self._lines_of(node, below=life):
            self.close(line)
            self.events.line_ended(line, gone=True)

    def _lines_of(self, node: NodeId, below: int) -> list[Connection]:
        return [
            line for line, peer in sorted(self.peers.items())
            if peer.kind == "broker" and peer.name == node and peer.life < below
        ]  # fmt: skip

    def closed(self, line: Connection, *, gone: bool) -> None:
        """BRK-O2. Several connections of one pair may end one after the other: the first one counts."""
        peer = self.peers.get(line)
        expected = self.dialing.get(line)
        self._forget(line)
        if peer is None:
            if expected and gone:
                self.state.lose_reach_of(expected)
            self.events.line_ended(line, gone=gone)
        elif peer.kind == "client":
            self.events.client_ended(line, gone=gone)
        else:
            self._broker_line_closed(line, peer, gone=gone)

    def _broker_line_closed(self, line: Connection, peer: Peer, *, gone: bool) -> None:
        name = NodeId(peer.name)
        if not gone or peer.life < self.state.lives.get(name, 0):
            self.events.line_ended(line, gone=gone)
            return
        ended = [line]
        if self.state.primary:
            self.state.lose_reach_of(name)  # Perhaps only out of reach: whatever else they share may go on.
        else:
            ended += self._lines_of(name, below=peer.life + 1)
        was_neighbour = any(end in self.state.links() for end in ended)
        self.events.found_dead(name, peer.life, neighbour=was_neighbour, lines=ended)
        for end in ended[1:]:
            self.close(end)
        for end in ended:
            self.events.line_ended(end, gone=True)
