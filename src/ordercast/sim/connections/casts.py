"""Datagrams under virtual time: lost, doubled and overtaken by chance, and gone if nobody is there when they arrive.

What is drawn for a datagram belongs to its two processes, the instant, and how many went between them in that instant.
Whatever arrives at one instant is one event of the calendar, and one turn of each process that it reaches: a gossip
round of a thousand processes plans a few events, not thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from ordercast.core.chance import mix, salt, unit
from ordercast.core.messages import Packet
from ordercast.core.process import CAST_BYTES, Peer
from ordercast.core.wire import FRAME_PREFIX_BYTES, Codec
from ordercast.scenario.tables import Latency
from ordercast.sim.clock import NS_PER_MS, Scheduler
from ordercast.sim.connections.life import Frame, Life, Process
from ordercast.sim.links.network import latency_draw

_LOSS, _DUPLICATE, _SECOND_COPY = 1, 2, 3

Draw = Callable[[int], int]


class CastModel(msgspec.Struct, frozen=True):
    """What happens to datagrams, besides the latency that all packets between two processes have."""

    loss: float = 0.0
    """The probability that one never arrives."""
    duplicate: float = 0.0
    """The probability that one arrives a second time, after a latency of its own."""
    bytes_per_ms: float = 0.0
    """A datagram takes longer by its length over this; 0: length does not matter. Needs a codec or `weigh`."""


class Crossing(Protocol):
    """What lies between processes, as datagrams see it."""

    seed: int
    clock: Scheduler
    codec: Codec | None
    tap: Callable[[str, str, Packet], None] | None

    def listener(self, address: str) -> Process | None: ...

    def separated(self, one: str, other: str) -> bool: ...

    def latency_between(self, source: str, target: str) -> Latency | Draw: ...

    def encode(self, packet: Packet) -> bytes: ...


class Casts:
    """All datagrams of a world."""

    def __init__(self, between: Crossing, model: CastModel) -> None:
        self.model = model
        self._sent = self._doubled = 0
        self._losses: Counter[str] = Counter()
        self.weigh: Callable[[Packet], int] | None = None
        """How long a packet would be; only asked where there is no codec and length matters."""
        self._between = between
        self._clock = between.clock
        self._arriving: dict[int, list[Any]] = {}
        """By instant: receiver, sender and packet, again and again, in order of sending."""
        self._draws: dict[Latency, tuple[int, Draw]] = {}
        self._last_latency: tuple[Latency | None, tuple[int, Draw]] = (None, (-1, lambda _: 0))
        """The one that was used last, which is mostly the one of the next datagram, too."""
        self._salts = _Salts(between.seed)
        self._instant = -1
        self._repeats: dict[tuple[str, str], int] = {}
        """How many datagrams went between two processes in this instant."""
        self._weighed: tuple[Packet | None, int] = (None, 0)

    @property
    def counts(self) -> dict[str, int]:
        """How many were sent, doubled, and lost for which reason; what never happened is left out."""
        losses = {f"lost_{why}": number for why, number in self._losses.items()}
        return {"sent": self._sent, **({"doubled": self._doubled} if self._doubled else {}), **losses}

    def heal(self) -> None:
        """From now on nothing is lost or doubled."""
        self.model = CastModel(bytes_per_ms=self.model.bytes_per_ms)

    def cast_all(self, life: Life, addresses: Iterable[str], packet: Packet) -> None:
        """One datagram to each of the addresses."""
        between = self._between
        name, listener, separated, tap = life.name, between.listener, between.separated, between.tap
        for address in addresses:
            self._sent += 1
            life.process.sent += 1
            target = listener(address)
            if tap is not None:
                tap(name, target.name if target is not None else address, packet)
            if target is None:
                self._losses["nobody"] += 1
                continue
            frame: Frame = packet
            if between.codec is not None:
                frame = between.encode(packet)
                if len(frame) > CAST_BYTES:
                    life.count("casts_too_long")
                    self._losses["too_long"] += 1
                    continue
            if separated(name, target.name):
                self._losses["partition"] += 1
            else:
                self._carry(life, target, frame)

    def _carry(self, life: Life, target: Process, frame: Frame) -> None:
        model, clock = self.model, self._clock
        now = sent = clock.now
        constant_ns, draw = self._latency(life.name, target.name)
        if model.bytes_per_ms:
            now += round(self._length(frame) / model.bytes_per_ms * NS_PER_MS)
        if constant_ns >= 0 and not model.loss and not model.duplicate:
            self._plan(now + constant_ns, life.peer, target, frame)
            return
        salts, pair = self._salts, (life.name, target.name)
        if sent != self._instant:
            self._instant = sent
            self._repeats.clear()
        again = self._repeats[pair] = self._repeats.get(pair, 0) + 1
        bits = mix(mix(salts[life.name], salts[target.name]), sent, again)
        if model.loss and unit(mix(bits, _LOSS)) < model.loss:
            self._losses["chance"] += 1
            return
        self._plan(now + draw(bits), life.peer, target, frame)
        if model.duplicate and unit(mix(bits, _DUPLICATE)) < model.duplicate:
            self._doubled += 1
            self._plan(now + draw(mix(bits, _SECOND_COPY)), life.peer, target, frame)

    def _plan(self, arrival: int, peer: Peer, target: Process, frame: Frame) -> None:
        batch = self._arriving.get(arrival)
        if batch is None:
            self._arriving[arrival] = [target, peer, frame]
            self._clock.at(arrival, self._arrive, arrival)
        else:
            batch += (target, peer, frame)

    def _arrive(self, instant: int, _: None) -> None:
        batch = self._arriving.pop(instant)
        if len(batch) == 3:  # Where latencies are drawn, this is nearly always so.
            target, peer, frame = batch
            self._hand_over(target, [peer, frame])
            return
        by_target: dict[Process, list[Any]] = {}
        for i in range(0, len(batch), 3):
            by_target.setdefault(batch[i], []).extend(batch[i + 1 : i + 3])
        for target, casts in by_target.items():
            self._hand_over(target, casts)

    def _hand_over(self, target: Process, casts: list[Any]) -> None:
        if target.life is None:
            self._losses["dead"] += len(casts) // 2
        else:
            target.life.receive_casts(casts)

    def _length(self, frame: Frame) -> int:
        if isinstance(frame, bytes):
            return len(frame) + FRAME_PREFIX_BYTES
        known, size = self._weighed
        if known is not frame:
            size = self.weigh(frame) if self.weigh is not None else 0
            self._weighed = frame, size
        return size

    def _latency(self, source: str, target: str) -> tuple[int, Draw]:
        """The nanoseconds if they are always the same, else -1; and how they are drawn."""
        latency = self._between.latency_between(source, target)
        last, known = self._last_latency
        if latency is last:
            return known
        if callable(latency):
            return -1, latency
        found = self._draws.get(latency)
        if found is None:
            draw = latency_draw(latency)
            found = self._draws[latency] = draw(0) if isinstance(latency, int | float) else -1, draw
        self._last_latency = latency, found
        return found


class _Salts(dict[str, int]):
    """The bits that stand for each process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __missing__(self, name: str) -> int:
        self[name] = found = salt(self._seed, "cast", name)
        return found
