"""Orders and answers between a supervised run and its processes, one line of JSON at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ordercast.core.ids import NodeId
from ordercast.net.nodes.settings import NodeSettings
from ordercast.scenario.model import Scenario

Addresses = dict[NodeId, tuple[str, int]]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The first line a process reads: what it is to run."""

    nodes: list[NodeId]
    scenario: Scenario
    protocol: str
    seed: int
    cluster: str
    token: str
    """In hexadecimal."""
    life: int
    """How often these nodes were started before."""
    epoch_ns: int
    journals: str
    """Directory for the journals."""
    settings: NodeSettings
    since: int | None = None
    """The first life whose memory these nodes have; None: they begin without any."""
    incarnation: int = 0
    """How often these nodes have lost their memory."""
    states: str = ""
    """Directory for what the nodes must remember; empty: they need not."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """One line for a process."""

    do: Literal["start", "meet", "go", "status", "stop"]
    dial: dict[NodeId, Addresses] = {}
    """For `start` and `meet`: whom each node dials, and where."""
    go_ns: int = 0
    """For `go`: when the scenario's time begins, on the monotonic clock."""


class NodeStatus(msgspec.Struct, frozen=True):
    """A node's distance from being at rest."""

    steps: int
    met: int
    """Neighbours that were connected at least once."""
    pending: int
    """Publishers that have not finished."""
    timers: int
    outstanding: dict[NodeId, int]
    """Packets that a neighbour has not confirmed, where there are any."""
    sent: int
    received: int

    @property
    def idle(self) -> bool:
        return not self.pending and not self.timers


class WorkerAnswer(msgspec.Struct, frozen=True):
    """To the assignment: addresses. To every order: how the nodes are."""

    addresses: Addresses = {}
    nodes: dict[NodeId, NodeStatus] = {}


def journal_path(directory: Path, node: NodeId, life: int) -> Path:
    return directory / f"{node}.{life}.jsonl"


class Nodes(Protocol):
    """Port to the nodes of one process, whatever kind of nodes they are."""

    async def listen(self) -> WorkerAnswer:
        """Open the doors; the addresses of the nodes."""

    async def obey(self, order: WorkerOrder) -> WorkerAnswer: ...

    async def close(self) -> None: ...
