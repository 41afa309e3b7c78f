"""Atomic multicast for programs: join as a server or a client, then `await member.multicast(payload, to=[...])`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, valid_node
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.net.nodes.client import MulticastClient
from ordercast.net.nodes.neighbours import Address
from ordercast.net.nodes.node import NodeHost, NodePlace
from ordercast.net.nodes.settings import NodeSettings
from ordercast.protocols import CATALOGUE, lookup

__all__ = ["MulticastClient", "join"]

_KEEPS_REAL_TIME = ("delporte-fauconnier", "replicated-delporte-fauconnier")
_SUFFIX = "-real-time"


@asynccontextmanager
async def join(
    name: str,
    servers: Mapping[str, str],
    *,
    clients: Sequence[str] = (),
    protocol: str = "daisy-chain",
    options: Mapping[str, Any] | None = None,
    real_time: bool = False,
    cluster: str = "ordercast",
    token: bytes = b"",
    settings: NodeSettings | None = None,
) -> AsyncIterator[MulticastClient]:
    """Take part in a multicast over TCP until the block ends.

    Args:
        name: of this node: one of `servers` or of `clients`.
        servers: their addresses, `host:port`, in the one order that all nodes must give.
        clients: the nodes that only send.
        protocol: one of the atomic multicasts of `ordercast protocols`.
        options: of the protocol.
        real_time: whether a request that follows an answer is ordered after what was answered. Costs a round trip
            between the destinations of every message that has several.
        cluster: nodes of another name are turned away.
        token: the secret that nodes of the cluster share.
        settings: limits and timeouts of the network.
    """
    info = lookup(protocol_name(protocol, real_time=real_time))
    addresses = {_node(server, "servers"): _address(server, text) for server, text in servers.items()}
    host = _host(_node(name, "name"), addresses, clients, info, options, NodePlace(cluster, token), settings)
    client = MulticastClient(host)
    own = addresses.get(host.node)
    await (host.listen(*own) if own is not None else host.listen())
    try:
        await host.start({peer: address for peer, address in addresses.items() if _dials(host.node, peer, addresses)})
        yield client
    finally:
        await host.close()


def protocol_name(protocol: str, *, real_time: bool) -> str:
    """The protocol as it is called with or without real-time order."""
    if not real_time or protocol.endswith(_SUFFIX) or protocol in _KEEPS_REAL_TIME:
        return protocol
    name = f"{protocol}{_SUFFIX}"
    if protocol in CATALOGUE and name not in CATALOGUE:
        raise UsageError(f"real_time: there is no {protocol!r} with real-time order")
    return name


def _host(
    name: NodeId,
    addresses: Mapping[NodeId, Address],
    clients: Sequence[str],
    info: ProtocolInfo,
    options: Mapping[str, Any] | None,
    net: NodePlace,
    settings: NodeSettings | None,
) -> NodeHost:
    asking = tuple(_node(client, "clients") for client in clients)
    everyone = (*addresses, *asking)
    if len(set(everyone)) < len(everyone):
        raise UsageError("clients: a node is named twice, or is a server too")
    if name not in everyone:
        raise UsageError(f"name: {name!r} is neither a server nor a client")
    neighbours = tuple(addresses) if name in asking else everyone
    place = Place(name, tuple(peer for peer in neighbours if peer != name), everyone, None, 0, asking)
    return NodeHost(place, info, info.parse_options(dict(options or {})), net, settings=settings)


def _dials(node: NodeId, peer: NodeId, addresses: Mapping[NodeId, Address]) -> bool:
    """Clients dial all servers; of two servers the earlier one dials."""
    order = list(addresses)
    return node not in addresses or order.index(node) < order.index(peer)


def _node(name: str, field: str) -> NodeId:
    if not valid_node(name):
        raise UsageError(f"{field}: {name!r} is no name for a node")
    return NodeId(name)


def _address(server: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"servers: the address {text!r} of {server} is not HOST:PORT")
    return host, int(port)
