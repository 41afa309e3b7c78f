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
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.net.json_logs import log_to_stderr
from ordercast.net.nodes.channel import NEVER_MET
from ordercast.net.nodes.node import NodeHost, NodePlace
from ordercast.net.nodes.replay import told_by
from ordercast.net.nodes.state_log import StateLog, belongs_to
from ordercast.net.supervise.orders import Assignment, Nodes, NodeStatus, WorkerAnswer, WorkerOrder, journal_path
from ordercast.net.supervise.overlay_party import OverlayParty
from ordercast.net.supervise.workload import Workload
from ordercast.overlay.extended import Overlay, at_start
from ordercast.overlay.graphs import build_graph
from ordercast.overlay.groups import build_groups
from ordercast.protocols import lookup
from ordercast.scenario.choosing import Population, joining
from ordercast.scenario.model import Scenario
from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast.net.supervise.process")

FAILED = 70
"""Exit code of a process that found a bug of ours."""
REFUSED = 2
"""Exit code of a process that was asked for the impossible, or whose disk failed; its log ends with the reason."""
_ORDER_BYTES = 1 << 24


class ProcessLayout:
    """The layout of a run: the graph that the protocol runs on, the groups, and the place of every node."""

    def __init__(self, scenario: Scenario, info: ProtocolInfo, seed: int) -> None:
        base = build_graph(scenario.overlay, seed)
        joiners = joining(scenario.fault) if info.admits else []
        groups = build_groups(scenario.groups, at_start(base, joiners), seed)
        self.options: Any = info.parse_options(scenario.options)
        self._overlay = Overlay(base, groups, info, self.options, joiners)
        self.graph = graph = self._overlay.graph
        self.people = Population(graph.nodes, graph.servers, graph.clients, groups)

    def place(self, node: NodeId, incarnation: int) -> Place:
        return self._overlay.place(node, incarnation)


class Party:
    """The nodes of one process."""

    def __init__(self, assignment: Assignment, protocol: ProtocolInfo) -> None:
        self._assignment = assignment
        self._protocol = protocol
        self._layout = ProcessLayout(assignment.scenario, protocol, assignment.seed)
        self._hosts: dict[NodeId, NodeHost] = {}
        self._loads: dict[NodeId, Workload] = {}
        for node in assignment.nodes:
            self._hosts[node] = host = self._host(node)
            resumes = assignment.life > 0
            self._loads[node] = Workload(
                host, assignment.scenario, self._layout.people, assignment.seed, resumes=resumes
            )

    def _host(self, node: NodeId) -> NodeHost:
        given = self._assignment
        journals = Path(given.journals)
        journal = Journal(journal_path(journals, node, given.life), packets=given.scenario.trace.record == "all")
        place, options = self._layout.place(node, given.incarnation), self._layout.options
        net = NodePlace(given.cluster, bytes.fromhex(given.token), given.life, given.epoch_ns, given.since)
        log = told = None
        if given.states:
            whose = belongs_to(place, self._protocol, options)
            settings = given.settings
            log = StateLog(
                Path(given.states) / node, whose, fsync=settings.state_fsync, least_bytes=settings.snapshot_bytes
            )
            log.log.report(node)
            former = range(given.life if given.since is None else given.since, given.life)
            told = told_by(path for life in former if (path := journal_path(journals, node, life)).exists())
        return NodeHost(
            place, self._protocol, options, net, settings=given.settings, journal=journal, log=log, told=told
        )  # fmt: skip

    async def listen(self) -> WorkerAnswer:
        return WorkerAnswer(addresses={node: await host.listen() for node, host in self._hosts.items()})

    async def obey(self, order: WorkerOrder) -> WorkerAnswer:
        match order.do:
            case "start":
                for node, host in self._hosts.items():
                    await host.start(order.dial.get(node, {}))
            case "meet":
                for node, host in self._hosts.items():
                    for peer, address in order.dial.get(node, {}).items():
                        host.neighbours.dial(peer, address)
            case "go":
                for load in self._loads.values():
                    load.start(order.go_ns)
            case "stop":
                await self.close()
            case "status":
                pass
        return WorkerAnswer(nodes={node: self._status(node) for node in self._hosts})

    async def close(self) -> None:
        for load in self._loads.values():
            await load.close()
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _status(self, node: NodeId) -> NodeStatus:
        host = self._hosts[node]
        channels = host.neighbours.channels.values()
        return NodeStatus(
            steps=host.steps,
            met=sum(channel.peer_life != NEVER_MET for channel in channels),
            pending=self._loads[node].pending,
            timers=host.timers.armed,
            outstanding={channel.peer: channel.outstanding for channel in channels if channel.outstanding},
            sent=sum(channel.sent for channel in channels),
            received=sum(channel.received for channel in channels),
        )


def party_of(assignment: Assignment, protocol: ProtocolInfo) -> Nodes:
    """The nodes that the assignment asks for."""
    if protocol.build_overlay is None:
        return Party(assignment, protocol)
    return OverlayParty(assignment, protocol)


async def serve() -> None:
    """Read the assignment, run the nodes, obey until told to stop or left alone."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_fail)
    orders = asyncio.StreamReader(limit=_ORDER_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    assignment = msgspec.json.decode(await orders.readline(), type=Assignment)
    party = party_of(assignment, lookup(assignment.protocol))
    _answer(await party.listen())
    while line := await orders.readline():
        order = msgspec.json.decode(line, type=WorkerOrder)
        _answer(await party.obey(order))
        if order.do == "stop":
            return
    LOG.error("left alone")
    await party.close()


def main() -> None:
    import uvloop

    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(serve())
        except (UsageError, OSError) as error:
            _fail(runner.get_loop(), {"message": "refused", "exception": error})


def _answer(answer: WorkerAnswer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def _fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A handler broke a promise, or the disk did. What is left behind cannot be trusted: the process must not go on."""
    error = context.get("exception")
    traced = None if isinstance(error, UsageError) else error
    LOG.critical(context["message"], exc_info=traced, extra={"facts": {"failure": str(error)}})
    logging.shutdown()
    os._exit(REFUSED if isinstance(error, UsageError | OSError) else FAILED)


if __name__ == "__main__":
    main()
