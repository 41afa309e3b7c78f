"""Protocols for trees over TCP: links between all nodes that such a protocol links, and places that know the tree.

Each protocol is an attribute of this module, so that scenarios can name it: `tests.support.tree_over_tcp:CBCAST`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.machine import Machine, Place
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Routes, TreePlace, extended
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.protocols import CATALOGUE
from ordercast.scenario.model import Edges, Scenario, Tree

BASE: Graph = build_graph(Tree(nodes=7), 0)


def attribute(name: str) -> str:
    return name.upper().replace("-", "_")


def _over_tcp(info: ProtocolInfo) -> ProtocolInfo:
    def build(place: Place, options: Any) -> Machine:
        given = {field: getattr(place, field) for field in Place.__struct_fields__}
        return info.build(TreePlace(**given, routes=Routes(BASE, place.groups)), options)

    return msgspec.structs.replace(info, build=build, reach=None)


def with_links(scenario: Scenario) -> Scenario:
    """The same scenario on the extended graph of the base tree, with the protocol as this module builds it."""
    info = CATALOGUE[scenario.protocol]
    assert info.reach is not None
    linked = extended(Routes(BASE, None), info.reach(info.parse_options(scenario.options)))
    return msgspec.structs.replace(
        scenario,
        overlay=Edges(edges=[(str(a), str(b)) for a, b in linked.edges], tree=False),
        protocol=f"{__name__}:{attribute(info.name)}",
    )


globals().update({attribute(name): _over_tcp(info) for name, info in CATALOGUE.items() if info.reach is not None})
