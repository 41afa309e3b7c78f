"""Which servers form which group, and a message as the groups see it.

Spec: docs/protocols/replicated.md (REP-R1, REP-R2).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.core.state import State

_END_OF_NAMES = ""


class Division(State):
    """Which servers form which group. A group's name has a blank in it, so it is no node's name."""

    constant: ClassVar[tuple[str, ...]] = ("names", "members", "group_of")

    def __init__(self, servers: tuple[NodeId, ...], nodes: tuple[NodeId, ...], replicas: int) -> None:
        """REP-R1: neighbours in the order of servers; what does not fill a group of its own goes to the last one."""
        count = len(servers) // replicas
        if not count:
            raise UsageError(f"replicas: {len(servers)} servers are too few for a group of {replicas}")
        self.names = tuple(NodeId(f"group {i}") for i in range(count))
        parts = [servers[i * replicas : (i + 1) * replicas] for i in range(count - 1)]
        parts.append(servers[(count - 1) * replicas :])
        self.members: dict[NodeId, tuple[NodeId, ...]] = dict(zip(self.names, parts, strict=True))
        self.group_of = {server: name for name, part in self.members.items() for server in part}
        self.members.update({node: (node,) for node in nodes})  # A client is an endpoint of its own.

    def groups(self, servers: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The groups of these servers, each once, in order."""
        named = {self.group_of[server] for server in servers}
        return tuple(name for name in self.names if name in named)


def to_groups(message: Message, groups: tuple[NodeId, ...]) -> Message:
    """The message as the groups' machines see it. The servers it names travel among the keys, which none looks at."""
    keys = (*message.dst, _END_OF_NAMES, *message.keys)
    return msgspec.structs.replace(message, dst=groups, keys=keys)


def to_servers(message: Message) -> Message:
    """The message as its publisher wrote it."""
    end = message.keys.index(_END_OF_NAMES)
    return msgspec.structs.replace(message, dst=tuple(map(NodeId, message.keys[:end])), keys=message.keys[end + 1 :])


def names_servers(message: Message) -> bool:
    """Whether this is a message as the groups see it."""
    return _END_OF_NAMES in message.keys
