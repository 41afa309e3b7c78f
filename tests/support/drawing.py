"""Schedules of atomic multicast drawn as text: a column a step, a line a server.

`a` is a delivery of message a, `a→2` one that sends it on to server 2, `(a)→3` a visit, `[a]` a packet held back.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.core.effects import Deliver, Send
from ordercast.core.messages import Message, Packet
from tests.support.multicast import Servers


def draw(servers: Servers, schedule: str) -> str:
    """Run the schedule and draw it."""
    steps: list[str] = []
    cells: dict[str, list[str]] = {server: [] for server in servers.servers}
    for step in _single_steps(servers, schedule):
        happened = _take(servers, step)
        steps.append(step)
        for server, column in cells.items():
            column.append(happened.get(server, ""))
    widths = [max(len(step), *(len(column[i]) for column in cells.values())) for i, step in enumerate(steps)]
    lines = [("", steps), *cells.items()]
    return "\n".join(
        (f"{head:2}" + "".join(f" {cell:{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()
        for head, row in lines
    )


def _single_steps(servers: Servers, schedule: str) -> Iterator[str]:
    """The steps one by one; what `*` drains depends on what happened before."""
    for asked in schedule.split():
        if asked == "*":
            while busy := sorted(pair for pair, channel in servers.channels.items() if channel):
                yield ">".join(busy[0])
        else:
            step, _, times = asked.partition("x") if ">" in asked else (asked, "", "")
            yield from [step] * int(times or 1)


def _take(servers: Servers, step: str) -> dict[str, str]:
    if step.startswith("c:"):
        actor, name = next(iter(servers.copies[step[2:]])), step[2:]
    else:
        sender, actor = step.split(">")
        name = _name(servers, servers.channels[sender, actor][0])
    before = len(servers.effects)
    servers.run(step)
    parts: list[str] = []
    for node, effect in servers.effects[before:]:
        match effect:
            case Deliver(message) if node == actor:
                parts.append(servers.names[message.id])
            case Send(peer, packet) if node == actor and packet.carries:
                passed = _name(servers, packet)
                if parts and parts[-1] == passed:
                    parts.pop()
                    parts.append(f"{passed}→{peer}")
                else:
                    parts.append(f"({passed})→{peer}")
    return {actor: " ".join(parts) or f"[{name}]"}


def _name(servers: Servers, packet: Packet) -> str:
    assert packet.carries
    message = getattr(packet, packet.carries)
    assert isinstance(message, Message)
    return servers.names[message.id]
