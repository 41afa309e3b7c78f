"""The nodes of one process that choose their neighbours themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.chance import salt
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.member import OverlayMember
from ordercast.net.supervise.orders import Addresses, Assignment, NodeStatus, WorkerAnswer, WorkerOrder, journal_path
from ordercast.net.supervise.workload import Workload
from ordercast.net.wire.credentials import join_address
from ordercast.overlay.graphs import whom_each_knows
from ordercast.scenario.choosing import Population, joining
from ordercast.scenario.model import Everyone, Scenario
from ordercast.trace.journal import Journal


class OverlayLayout:
    """The nodes that will ever be there, and whom each knows first."""

    def __init__(self, scenario: Scenario, info: ProtocolInfo, seed: int) -> None:
        self.options: Any = info.parse_options(scenario.options)
        if getattr(self.options, "script", ()):
            raise UsageError("options.script: links by name are for simulate and explore; over TCP a sampling chooses")
        self.late = frozenset(joining(scenario.fault))
        self.graph, self.contacts = whom_each_knows(scenario.overlay, self.late, seed)
        assert isinstance(scenario.groups, Everyone)
        topics = [Topic(f"t{i}") for i in range(scenario.groups.topics)]
        nodes = self.graph.nodes
        self.people = Population(nodes, nodes, (), dict.fromkeys(topics, nodes))


class OverlayParty:
    """Obeys orders for its nodes; see `Nodes`."""

    def __init__(self, assignment: Assignment, protocol: ProtocolInfo) -> None:
        self._assignment = assignment
        self._protocol = protocol
        self._layout = OverlayLayout(assignment.scenario, protocol, assignment.seed)
        self._addresses: dict[NodeId, str] = {}
        """Of all that the nodes of this process know first, and their own."""
        self._members = {node: self._member(node) for node in assignment.nodes}
        resumes = assignment.life > 0
        self._loads = {
            node: Workload(member, assignment.scenario, self._layout.people, assignment.seed, resumes=resumes)
            for node, member in self._members.items()
        }

    def _member(self, node: NodeId) -> OverlayMember:
        given = self._assignment
        path = journal_path(Path(given.journals), node, given.life)
        net = NodePlace(given.cluster, bytes.fromhex(given.token), given.life, given.epoch_ns)
        return OverlayMember(
            node, self._protocol, self._build, self._layout.people.groups, net, given.settings,
            Journal(path, packets=given.scenario.trace.record == "all"),
            late=node in self._layout.late and not given.life, incarnation=given.incarnation,
            salt=salt(given.seed, "overlay", node, given.life),
            carrier=given.scenario.carrier if self._protocol.casts else "none",
        )  # fmt: skip

    def _build(self, wires: OverlayWires, place: OverlayPlace) -> OverlayMachine:
        assert self._protocol.build_overlay is not None
        return self._protocol.build_overlay(wires, place, self._options())

    def _options(self) -> Any:
        """With addresses where machines want them."""
        options = self._layout.options
        found = {name: tuple(map(self._address, getattr(options, name))) for name in self._protocol.addressed}
        return msgspec.structs.replace(options, **found) if found else options

    def _address(self, node: str) -> str:
        return self._addresses[NodeId(node)]

    async def listen(self) -> WorkerAnswer:
        addresses = {node: await member.listen() for node, member in self._members.items()}
        self._learn(addresses)
        return WorkerAnswer(addresses=addresses)

    def _learn(self, addresses: Addresses) -> None:
        self._addresses |= {node: join_address(*address) for node, address in addresses.items()}

    async def obey(self, order: WorkerOrder) -> WorkerAnswer:
        match order.do:
            case "start":
                for addresses in order.dial.values():
                    self._learn(addresses)
                for node, member in self._members.items():
                    await member.start(order.dial.get(node, {}))
            case "go":
                for load in self._loads.values():
                    load.start(order.go_ns)
            case "stop":
                await self.close()
            case "meet" | "status":
                pass  # Whom these nodes meet is their own business.
        return WorkerAnswer(nodes={node: self._status(node) for node in self._members})

    async def close(self) -> None:
        for load in self._loads.values():
            await load.close()
        await asyncio.gather(*(member.close() for member in self._members.values()))

    def _status(self, node: NodeId) -> NodeStatus:
        member = self._members[node]
        return NodeStatus(
            steps=member.steps,
            met=member.met,
            pending=self._loads[node].pending,
            timers=member.timers,
            outstanding={},
            sent=member.sent,
            received=member.received,
        )
