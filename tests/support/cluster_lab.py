"""One member of a cluster, driven by hand: a test says what arrives when, and looks at what it delivers and asks for.

Time is counted in rounds of one millisecond. Entries are called a, b, c; `a2` is the second update of entry a in epoch
1, `a1@2` the first one in epoch 2.
"""

from __future__ import annotations

from typing import Any

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Message, Packet
from ordercast.core.process import OverlayPlace, Peer
from ordercast.protocols.cluster.events import ABSENT, Event, Range, Value, epoch_of, key_of, seq_of, value_of
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import Recover, Recovered, Update
from tests.support.hand_wires import HandWires

CLUSTER = "t0"
ROUND_NS = 1_000_000
OTHER = Peer("node", "other", 0, "other")
ENTRIES = "abc"


def value(name: str) -> Value:
    """`3`: the third of epoch 1; `1@2`: the first of epoch 2; `0`: nothing."""
    seq, _, epoch = name.partition("@")
    return value_of(int(epoch or 1), int(seq)) if int(seq) else 0


def event(name: str, vector: str, prev: str | None = None, creator: str | None = None) -> Event:
    """`event("b1", "1 1 0")`. The first of an epoch follows `prev`, or nothing."""
    entry, mine = ENTRIES.index(name[0]), value(name[1:])
    first = seq_of(mine) == 1
    message = Message(Origin(f"maker-{name[0]}{epoch_of(mine)}"), seq_of(mine), Topic(CLUSTER), name.encode())
    before = value(prev or "0") if first else ABSENT
    return Event(key_of(entry, mine), tuple(map(value, vector.split())), before, creator or f"at-{name[0]}", message)


class OneMember:
    """A member of a cluster with three entries; `terminate` and `recover` are its two patiences, in rounds."""

    def __init__(self, *, terminate: int = 6, recover: int = 4, genesis: bool = True, **settings: Any) -> None:
        self.wires = HandWires()
        options: dict[str, Any] = {
            "round_ms": 1.0, "entries": 3, "terminate_rounds": terminate, "recover_rounds": recover, "ask": 1,
            "recovery": "k", "digest_every": 0,
        }  # fmt: skip
        me = Peer("node", settings.pop("name", "me"), settings.pop("life", 0), "me")
        contacts = settings.pop("contacts", ("other",))
        place = OverlayPlace(me, contacts, genesis, salt=7)
        app = {"app": settings.pop("app")} if "app" in settings else {}
        self.machine = ClusterMachine(self.wires, place, ClusterOptions(**options | settings), **app)
        self.machine.on_start()

    @property
    def member(self) -> Any:
        return self.machine.clusters[CLUSTER]

    @property
    def delivered(self) -> list[str]:
        return [message.payload.decode() for message in self.wires.delivered]

    def gossip(self, *events: Event, digest: str = "", age: int = 0, peer: Peer = OTHER) -> list[str]:
        """What is delivered when they arrive in one packet."""
        vector = tuple(map(value, digest.split()))
        return self.cast(Update(CLUSTER, events, bytes([age] * len(events)), digest=vector), peer)

    def recovered(self, *events: Event) -> list[str]:
        return self.cast(Recovered(CLUSTER, events))

    def cast(self, packet: Packet, peer: Peer = OTHER) -> list[str]:
        before = len(self.wires.delivered)
        self.machine.on_cast(peer, [packet])
        self.machine.on_turn_end()
        return self.delivered[before:]

    def publish(self, payload: str, origin: str = "me", number: int = 1) -> None:
        self.machine.on_publish(Message(Origin(origin), number, Topic(CLUSTER), payload.encode()))

    def until(self, rounds: float) -> list[str]:
        """Let time pass, timers included; what is delivered meanwhile."""
        before, end = len(self.wires.delivered), round(rounds * ROUND_NS)
        while self.wires.timers and min(self.wires.timers.values()) <= end:
            self.machine.on_timer(self.wires.next_timer())
        self.wires.now_ns = end
        return self.delivered[before:]

    def asked(self) -> list[Range]:
        """The ranges that were asked for since the last look."""
        ranges = [one for _, packet in self.wires.casts if isinstance(packet, Recover) for one in packet.ranges]
        self.wires.casts.clear()
        return ranges

    def told(self, kind: type[Packet]) -> list[tuple[str, Any]]:
        """What was cast of this kind since the last look, and to whom."""
        found = [(address, packet) for address, packet in self.wires.casts if isinstance(packet, kind)]
        self.wires.casts.clear()
        return found


def asked_range(entry: str, low: str, high: str) -> Range:
    return ENTRIES.index(entry), value(low), value(high)
