"""How should a machine hand out its effects? One flood hop (receive, relay to two, deliver) in each style.

Run: python benchmarks/effect_styles.py
The choice made from this table is docs/decisions/0002-effects-are-calls-on-an-outbox.md.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

NEIGHBOURS = ("n1", "n2", "n3")
HOPS = 200_000


@dataclass(frozen=True, slots=True)
class SendData:
    peer: str
    packet: object


@dataclass(frozen=True, slots=True)
class DeliverData:
    message: object


class SendStruct(msgspec.Struct, frozen=True, gc=False):
    peer: str
    packet: object


class DeliverStruct(msgspec.Struct, frozen=True, gc=False):
    message: object


class ReceivedStruct(msgspec.Struct, frozen=True, gc=False):
    peer: str
    packet: object


class Sink:
    """Stands for a runtime: what it does with an effect is the same in every style."""

    __slots__ = ("delivered", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0

    def send(self, peer: str, packet: object) -> None:
        self.sent += 1

    def deliver(self, message: object) -> None:
        self.delivered += 1


class Node:
    """The flood step, once per style."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def dataclasses(self, peer: str, packet: int) -> list[object]:
        if packet in self.seen:
            return []
        self.seen.add(packet)
        effects: list[object] = [SendData(n, packet) for n in NEIGHBOURS if n != peer]
        effects.append(DeliverData(packet))
        return effects

    def structs(self, event: ReceivedStruct) -> list[object]:
        match event:
            case ReceivedStruct(peer, packet):
                if packet in self.seen:
                    return []
                self.seen.add(packet)  # type: ignore[arg-type]
                effects: list[object] = [SendStruct(n, packet) for n in NEIGHBOURS if n != peer]
                effects.append(DeliverStruct(packet))
                return effects

    def tuples(self, peer: str, packet: int) -> list[tuple[object, ...]]:
        if packet in self.seen:
            return []
        self.seen.add(packet)
        effects: list[tuple[object, ...]] = [("send", n, packet) for n in NEIGHBOURS if n != peer]
        effects.append(("deliver", packet))
        return effects

    def calls(self, peer: str, packet: int, out: Sink) -> None:
        if packet in self.seen:
            return
        self.seen.add(packet)
        for n in NEIGHBOURS:
            if n != peer:
                out.send(n, packet)
        out.deliver(packet)


def run_dataclasses() -> None:
    node, sink = Node(), Sink()
    for packet in range(HOPS):
        for effect in node.dataclasses("n1", packet):
            if isinstance(effect, SendData):
                sink.send(effect.peer, effect.packet)
            elif isinstance(effect, DeliverData):
                sink.deliver(effect.message)


def run_structs() -> None:
    node, sink = Node(), Sink()
    for packet in range(HOPS):
        for effect in node.structs(ReceivedStruct("n1", packet)):
            if isinstance(effect, SendStruct):
                sink.send(effect.peer, effect.packet)
            elif isinstance(effect, DeliverStruct):
                sink.deliver(effect.message)


def run_tuples() -> None:
    node, sink = Node(), Sink()
    for packet in range(HOPS):
        for effect in node.tuples("n1", packet):
            if effect[0] == "send":
                sink.send(effect[1], effect[2])  # type: ignore[arg-type]
            else:
                sink.deliver(effect[1])


def run_calls() -> None:
    node, sink = Node(), Sink()
    for packet in range(HOPS):
        node.calls("n1", packet, sink)


STYLES: list[tuple[str, Callable[[], None]]] = [
    ("calls on an outbox", run_calls),
    ("tuples in a list", run_tuples),
    ("event and effects as msgspec Structs", run_structs),
    ("effects as frozen slotted dataclasses", run_dataclasses),
]


def main() -> None:
    best = {name: min(timeit.repeat(run, number=1, repeat=5)) for name, run in STYLES}
    fastest = min(best.values())
    print(f"{HOPS:,} hops, each: receive, relay to two neighbours, deliver; best of 5")
    print(f"{'style':40} {'ns/hop':>8} {'ratio':>6}")
    for name, seconds in best.items():
        print(f"{name:40} {seconds / HOPS * 1e9:8.0f} {seconds / fastest:6.2f}")


if __name__ == "__main__":
    main()
