"""One operating-system process of a cluster: it runs some of the nodes and obeys whoever started it.

Orders come on standard input and answers go to standard output, one JSON object a line; logs go to standard error.
When standard input ends, whoever gave the orders is gone, and so is the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.net.channel import NEVER_MET
from ordercast.net.host import Host, NetPlace
from ordercast.net.logs import log_to_stderr
from ordercast.net.settings import NetSettings
from ordercast.net.workload import Workload
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.overlay.groups import build_groups
from ordercast.protocols import lookup
from ordercast.scenario.choosing import Population
from ordercast.scenario.model import Scenario
from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast.net.process")

FAILED = 70
"""Exit code of a process that found a bug of ours."""
_ORDER_BYTES = 1 << 24

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
    settings: NetSettings


class Order(msgspec.Struct, frozen=True):
    """One line for a process."""

    do: Literal["start", "meet", "go", "status", "stop"]
    dial: dict[NodeId, Addresses] = {}
    """For `start` and `meet`: whom each node dials, and where."""
    go_ns: int = 0
    """For `go`: when the scenario's time begins, on the monotonic clock."""


class NodeStatus(msgspec.Struct, frozen=True):
    """How far a node is from being at rest."""

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


class Answer(msgspec.Struct, frozen=True):
    """To the assignment: addresses. To every order: how the nodes are."""

    addresses: Addresses = {}
    nodes: dict[NodeId, NodeStatus] = {}


def journal_path(directory: Path, node: NodeId, life: int) -> Path:
    return directory / f"{node}.{life}.jsonl"


def population(scenario: Scenario, graph: Graph, seed: int) -> Population:
    return Population(graph.nodes, graph.servers, graph.clients, build_groups(scenario.groups, graph, seed))


def build_place(graph: Graph, people: Population, node: NodeId, life: int) -> Place:
    return Place(node, graph.neighbours[node], graph.nodes, people.groups, life, graph.clients)


class Party:
    """The nodes of one process."""

    def __init__(self, assignment: Assignment, protocol: ProtocolInfo) -> None:
        scenario, seed = assignment.scenario, assignment.seed
        graph = build_graph(scenario.overlay, seed)
        people = population(scenario, graph, seed)
        options = protocol.parse_options(scenario.options)
        token = bytes.fromhex(assignment.token)
        net = NetPlace(assignment.cluster, token, assignment.life, assignment.epoch_ns)
        self._hosts: dict[NodeId, Host] = {}
        self._loads: dict[NodeId, Workload] = {}
        for node in assignment.nodes:
            path = journal_path(Path(assignment.journals), node, assignment.life)
            journal = Journal(path, packets=scenario.trace.record == "all")
            place = build_place(graph, people, node, assignment.life)
            host = Host(place, protocol, options, net, settings=assignment.settings, journal=journal)
            self._hosts[node] = host
            self._loads[node] = Workload(host, scenario, people, seed)

    async def listen(self) -> Answer:
        return Answer(addresses={node: await host.listen() for node, host in self._hosts.items()})

    async def obey(self, order: Order) -> Answer:
        match order.do:
            case "start":
                for node, host in self._hosts.items():
                    host.start(order.dial.get(node, {}))
            case "meet":
                for node, host in self._hosts.items():
                    for peer, address in order.dial.get(node, {}).items():
                        host.transport.dial(peer, address)
            case "go":
                for load in self._loads.values():
                    load.start(order.go_ns)
            case "stop":
                await self.close()
            case "status":
                pass
        return Answer(nodes={node: self._status(node) for node in self._hosts})

    async def close(self) -> None:
        for load in self._loads.values():
            await load.close()
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _status(self, node: NodeId) -> NodeStatus:
        host = self._hosts[node]
        channels = host.transport.channels.values()
        return NodeStatus(
            steps=host.steps,
            met=sum(channel.peer_life != NEVER_MET for channel in channels),
            pending=self._loads[node].pending,
            timers=host.armed_timers,
            outstanding={channel.peer: channel.outstanding for channel in channels if channel.outstanding},
            sent=sum(channel.sent for channel in channels),
            received=sum(channel.received for channel in channels),
        )


async def serve() -> None:
    """Read the assignment, run the nodes, obey until told to stop or left alone."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_fail)
    orders = asyncio.StreamReader(limit=_ORDER_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    assignment = msgspec.json.decode(await orders.readline(), type=Assignment)
    party = Party(assignment, lookup(assignment.protocol))
    _answer(await party.listen())
    while line := await orders.readline():
        order = msgspec.json.decode(line, type=Order)
        _answer(await party.obey(order))
        if order.do == "stop":
            return
    LOG.error("left alone")
    await party.close()


def main() -> None:
    import uvloop

    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def _fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A handler broke a promise. What it left behind cannot be trusted, so the process must not go on."""
    error = context.get("exception")
    LOG.critical(context["message"], exc_info=error, extra={"facts": {"failure": str(error)}})
    logging.shutdown()
    os._exit(FAILED)


if __name__ == "__main__":
    main()
