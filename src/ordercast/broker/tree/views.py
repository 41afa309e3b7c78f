"""Views: the part of the tree around it that every broker and client is told, to know where to go next (BRK-O17)."""

from __future__ import annotations

from collections.abc import Set

from ordercast.broker.tree.tree_state import TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Neighbour, View
from ordercast.pubsub.tree_packets import About, TreeView

_NOTHING = About((), 0, "")


class Views(TreePart):
    """Sends neighbours and clients a view of the tree whenever it differs from the last one."""

    def __init__(self, state: TreeState) -> None:
        super().__init__(state)
        self._sent: dict[Connection, TreeView | View] = {}
        self._about: dict[NodeId, About] = {}
        """What neighbours say of themselves, for `score`."""
        self._said: dict[Connection, About] = {}
        self._clients_have: View | None = None
        """The view that all clients have; None: not all have the same."""
        self._stale = False
        """Something has happened in the tree since they were last looked at: publications alone change no view."""

    def look_again(self) -> None:
        self._stale = True

    def forget(self, line: Connection) -> None:
        self._sent.pop(line, None)
        self._said.pop(line, None)

    def forget_all_but(self, nodes: Set[NodeId]) -> None:
        self._about = {node: about for node, about in self._about.items() if node in nodes}

    def received(self, line: Connection, packet: TreeView) -> None:
        if line == self.state.parent:
            self.state.see(packet.neighbours)

    def learned(self, line: Connection, node: NodeId, packet: About) -> None:
        if line in self.state.links():
            self._about[node] = packet

    def turn_end(self) -> None:
        """F-VIEW-2: any change of the neighbourhood or of the own view is pushed, complete."""
        if not self._stale:
            return
        self._stale = False
        for child, node in self.state.children.items():
            self._push(child, TreeView(self._for_child(node)))
        if self.state.clients:
            self._push_to_clients(self.for_client())
        if self.settings.view_order == "score":
            self._introduce()

    def _push_to_clients(self, view: View) -> None:
        """Thousands of clients are not gone through where nothing has changed for them."""
        if view != self._clients_have:
            self._clients_have = view
            for client in self.state.clients:
                self._push(client, view)

    def _push(self, line: Connection, view: TreeView | View) -> None:
        if self._sent.get(line) != view:
            self._sent[line] = view
            self.wires.send(line, view)

    def _introduce(self) -> None:
        about = About(self.topics.names(), self.state.residual, self.settings.region)
        for link in self.state.links():
            if self._said.get(link) != about:
                self._said[link] = about
                self.wires.send(link, about)

    def _neighbour(self, node: NodeId, hops: int, kind: str) -> Neighbour:
        about = self._about.get(node, _NOTHING)
        address = self.state.directory.get(node, "")
        return Neighbour(node, address, hops, kind, about.topics, about.residual, about.region)

    def _own_view(self) -> list[Neighbour]:
        """The view that the parent sent, without those who are believed dead."""
        return [entry for entry in self.state.view if not self.state.believed_dead(NodeId(entry.node))]

    def _for_child(self, child: NodeId) -> tuple[Neighbour, ...]:
        seen = []
        if self.state.parent_name is not None:
            seen.append(self._neighbour(self.state.parent_name, 2, "ancestor"))
        seen += [self._neighbour(other, 2, "sibling") for other in self.state.children.values() if other != child]
        for entry in self._own_view():
            if entry.hops < self.settings.max_hops:
                kind = "ancestor" if entry.kind == "ancestor" else "uncle"
                seen.append(_farther(entry, kind))
        return tuple(seen)

    def for_client(self) -> View:
        seen = []
        if self.state.parent_name is not None:
            seen.append(self._neighbour(self.state.parent_name, 2, "parent"))
        seen += [self._neighbour(child, 2, "child") for child in self.state.children.values()]
        seen += [_farther(entry, entry.kind) for entry in self._own_view()]
        return View(tuple(seen), tuple(sorted(self.state.directory.items())))

    def greet(self, client: Connection) -> None:
        """BRK-M1: answer an Attach with the view."""
        view = self.for_client()
        if view != self._clients_have:
            self._clients_have = None
        self._sent.pop(client, None)
        self._push(client, view)


def _farther(entry: Neighbour, kind: str) -> Neighbour:
    return Neighbour(entry.node, entry.address, entry.hops + 1, kind, entry.topics, entry.residual, entry.region)
