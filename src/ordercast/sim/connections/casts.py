"""Datagrams under virtual time: lost, doubled and overtaken by chance, and gone if nobody is there when they arrive.

What is drawn for a datagram belongs to its two processes, the instant, and how many went between them in that instant.
Whatever arrives at one instant is one event of the calendar, and one turn of each process that it reaches: a gossip
round of a thousand processes plans a few events, not thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from ordercast.core.chance import below, mix, salt, spread, stir, stir_twice
from ordercast.core.messages import Packet
from ordercast.core.process import CAST_BYTES, Peer
from ordercast.core.wire import FRAME_PREFIX_BYTES, Codec
from ordercast.scenario.tables import Latency
from ordercast.sim.clock import NS_PER_MS, Scheduler
from ordercast.sim.connections.life import Frame, Life, Process
from ordercast.sim.links.network import latency_draw

_LOSS, _DUPLICATE, _SECOND_COPY = spread(1), spread(2), spread(3)

Draw = Callable[[int], int]


class CastModel(msgspec.Struct, frozen=True):
    """The fate of datagrams, besides the latency that all packets between two processes have."""

    loss: float = 0.0
    """The probability that one never arrives."""
    duplicate: float = 0.0
    """The probability that one arrives a second time, after a latency of its own."""
    bytes_per_ms: float = 0.0
    """A datagram takes longer by its length over this; 0: length does not matter. Needs a codec or `weigh`."""


class Crossing(Protocol):
    """The way between processes, as datagrams see it."""

    seed: int
    clock: Scheduler
    codec: Codec | None
    tap: Callable[[str, str, Packet], None] | None

    @property
    def listeners(self) -> Mapping[str, Process]: ...

    @property
    def parted(self) -> bool: ...

    def separated(self, one: str, other: str) -> bool: ...

    def latencies(self) -> Callable[[str, str], Latency | Draw]: ...

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
        self._batches: dict[int, list[Any]] = {}
        """By instant at which several arrive: receiver, sender and packet, again and again, in order of sending."""
        self._draws: dict[Latency, tuple[int, Draw]] = {}
        self._last_latency: tuple[Latency | Draw | None, int, Draw] = (None, -1, lambda _: 0)
        """The one that was used last, which is mostly the one of the next datagram, too."""
        self._salts = _Salts(between.seed)
        self._instant = -1
        self._repeats: dict[str, dict[str, int]] = {}
        """By sender and receiver: how many datagrams went from one to the other in this instant."""
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
        addresses = tuple(addresses)
        found = list(map(between.listeners.get, addresses))
        self._sent += len(found)
        life.process.sent += len(found)
        if between.tap is not None:
            for address, target in zip(addresses, found, strict=True):
                between.tap(life.name, address if target is None else target.name, packet)
        targets = [target for target in found if target is not None]
        if len(targets) < len(found):
            self._losses["nobody"] += len(found) - len(targets)
        frame: Frame = packet
        if between.codec is not None and targets:
            frame = between.encode(packet)
            if len(frame) > CAST_BYTES:
                life.count("casts_too_long", len(targets))
                self._losses["too_long"] += len(targets)
                return
        if between.parted:
            near = [target for target in targets if not between.separated(life.name, target.name)]
            self._losses["partition"] += len(targets) - len(near)
            targets = near
        self._carry(life, targets, frame)

    def _carry(self, life: Life, targets: list[Process], frame: Frame) -> None:
        model, sent, salts, plan = self.model, self._clock.now, self._salts, self._plan
        at_free, arrive = self._clock.at_free, self._arrive
        loss, duplicate = below(model.loss), below(model.duplicate)
        name, peer, salted = life.name, life.peer, salts[life.name][0]
        latency_of, first = self._between.latencies(), spread(sent, 1)
        latency, constant_ns, draw = self._last_latency
        leaves = sent + round(self._length(frame) / model.bytes_per_ms * NS_PER_MS) if model.bytes_per_ms else sent
        if sent != self._instant:
            self._instant = sent
            self._repeats = {}
        repeats = self._repeats.setdefault(name, {})
        for target in targets:
            to = target.name
            of_pair = latency_of(name, to)
            if of_pair is not latency:
                latency, constant_ns, draw = self._last_latency = of_pair, *self._drawn(of_pair)
            if constant_ns >= 0 and not loss and not duplicate:
                plan(leaves + constant_ns, target, peer, frame)
                continue
            if to in repeats:
                repeats[to] += 1
                bits = mix(stir(salted ^ salts[to][1]), sent, repeats[to])
            else:
                repeats[to] = 1
                bits = stir_twice(salted ^ salts[to][1], first)
            if loss and stir(bits ^ _LOSS) < loss:
                self._losses["chance"] += 1
                continue
            if not at_free(arrival := leaves + draw(bits), arrive, target, [peer, frame]):
                plan(arrival, target, peer, frame)
            if duplicate and stir(bits ^ _DUPLICATE) < duplicate:
                self._doubled += 1
                plan(leaves + draw(stir(bits ^ _SECOND_COPY)), target, peer, frame)

    def _plan(self, arrival: int, target: Process, peer: Peer, frame: Frame) -> None:
        """Plan an arrival alone: where latencies are drawn it is nearly always the only one of its instant."""
        if not self._clock.at_free(arrival, self._arrive, target, [peer, frame]):
            self._plan_batch(arrival, [target, peer, frame])

    def _plan_batch(self, arrival: int, one: list[Any]) -> None:
        """Plan all arrivals of one instant as one event, together with one that was planned alone."""
        batch = self._batches.get(arrival)
        if batch is not None:
            batch += one
            return
        events = self._clock.instants.get(arrival, ()) if arrival > self._clock.now else ()
        for i, (action, target, cast) in enumerate(events):
            if action == self._arrive:
                self._batches[arrival] = [target, *cast, *one]
                self._clock.instants[arrival][i] = self._arrive_together, arrival, None
                return
        self._batches[arrival] = one
        self._clock.at(arrival, self._arrive_together, arrival)

    def _arrive(self, target: Process, cast: list[Any]) -> None:
        if target.life is None:
            self._losses["dead"] += 1
        else:
            target.life.receive_casts(cast)

    def _arrive_together(self, instant: int, _: None) -> None:
        batch = self._batches.pop(instant)
        by_target: dict[Process, list[Any]] = {}
        for i in range(0, len(batch), 3):
            by_target.setdefault(batch[i], []).extend(batch[i + 1 : i + 3])
        for target, casts in by_target.items():
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

    def _drawn(self, latency: Latency | Draw) -> tuple[int, Draw]:
        """The nanoseconds if they are always the same, else -1; and how they are drawn."""
        if callable(latency):
            return -1, latency
        found = self._draws.get(latency)
        if found is None:
            draw = latency_draw(latency)
            found = self._draws[latency] = draw(0) if isinstance(latency, int | float) else -1, draw
        return found


class _Salts(dict[str, tuple[int, int]]):
    """The bits that stand for each process, as a sender and as a receiver."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __missing__(self, name: str) -> tuple[int, int]:
        bits = salt(self._seed, "cast", name)
        self[name] = found = bits, spread(bits)
        return found
