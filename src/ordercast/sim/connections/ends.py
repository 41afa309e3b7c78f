"""One end of a connection: what it sends is on its way, held back, or lost with its process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ordercast.core.chance import mix

if TYPE_CHECKING:
    from ordercast.sim.connections.life import Life

Frame = Any
"""A packet, or its bytes where the world makes every packet a round trip through the codec."""


class _Goodbye:
    """The last thing on a connection that is closed on purpose."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class End:
    """Sends in order: nothing arrives before what was sent earlier. Times are in nanoseconds."""

    __slots__ = (
        "_batch_time", "_clock", "_constant_ns", "_draw_ns", "_flying", "_held", "_last_arrival", "_salt", "_sent",
        "broken", "closed", "life", "number", "opening", "other", "peer_name", "stalled",
    )  # fmt: skip

    def __init__(self, life: Life, number: int, peer_name: str, latency: Callable[[int], int], salted: int) -> None:
        self.life = life
        self.number = number
        self.peer_name = peer_name
        self.other: End | None = None
        self.opening = False
        """Dialed, and not answered yet."""
        self.stalled = False
        """A partition lies between the two ends."""
        self.closed = False
        """This end hears nothing any more."""
        self.broken = False
        """Nothing that this end sends arrives any more."""
        self._clock = life.world.clock
        self._salt = salted
        self.set_latency(latency)
        self._sent = 0
        self._last_arrival = 0
        self._batch_time = -1
        self._flying: deque[list[Frame]] = deque()
        self._held: list[Frame | _Goodbye] = []

    def set_latency(self, latency: Callable[[int], int]) -> None:
        """What is sent from now on takes so long, and overtakes nothing."""
        self._draw_ns = latency
        self._constant_ns = latency(0) if latency(0) == latency(self._salt) else -1

    def send(self, frame: Frame) -> None:
        if self.broken:
            return
        if self.opening or self.stalled:
            self._held.append(frame)
        else:
            self._launch(frame)

    def _launch(self, frame: Frame) -> None:
        arrival = self._arrival()
        flying = self._flying
        if flying and self._batch_time == arrival:
            flying[-1].append(frame)  # What arrives at one instant is handed over at once.
            return
        self._batch_time = arrival
        batch = [frame]
        flying.append(batch)
        clock = self._clock
        events = clock.instants.get(arrival)
        if events is None:
            clock.at(arrival, self._arrive, batch)
        else:
            events.append((self._arrive, batch, None))

    def _arrival(self) -> int:
        """When something that leaves now is there: FIFO."""
        self._sent = sent = self._sent + 1
        latency = self._constant_ns if self._constant_ns >= 0 else self._draw_ns(mix(self._salt, sent))
        arrival = self._clock.now + latency
        if arrival < self._last_arrival:
            return self._last_arrival
        self._last_arrival = arrival
        return arrival

    def first_arrival(self) -> int:
        """When the answer to the dial is there: before anything that is sent on this end."""
        return self._arrival()

    def _arrive(self, batch: list[Frame], _: None) -> None:
        if not batch:
            return  # Lost with its sender.
        self._flying.popleft()
        other = self.other
        if other is not None and not other.closed:
            other.life.receive(other, batch)

    def release(self) -> None:
        """Nothing is in the way any more: let go what was held back."""
        if self.opening or self.stalled:
            return
        held, self._held = self._held, []
        for item in held:
            if isinstance(item, _Goodbye):
                self._say_goodbye(item.reason)
            else:
                self._launch(item)

    def close(self, reason: str) -> None:
        """On purpose: what was sent before arrives, then the other end learns that this was the end."""
        self.closed = True
        if self.stalled or (self.opening and self._held):
            self._held.append(_Goodbye(reason))
        elif self.other is not None and not self.broken:
            self._say_goodbye(reason)

    @property
    def given_up(self) -> bool:
        """A dial that its process has lost interest in, with nothing left to say."""
        return self.closed and not self._held

    def _say_goodbye(self, reason: str) -> None:
        self._clock.at(self._arrival(), self._tell_other, False, reason)

    def break_off(self, why: str, detection_ns: int, share: float) -> None:
        """The process or the connection is dead: a prefix of what is in flight survives, then the other end knows."""
        self._held.clear()
        other = self.other
        if self.broken or other is None or other.closed:
            return
        self.broken = True
        in_flight = sum(map(len, self._flying))
        survivors = min(int(share * (in_flight + 1)), in_flight)
        for batch in self._flying:
            del batch[survivors:]
            survivors -= len(batch)
        while self._flying and not self._flying[-1]:
            self._flying.pop()
        self._batch_time = -1
        if not self.stalled:  # Across a partition not even that can be seen.
            self.tell_broken(why, detection_ns)

    def tell_broken(self, why: str, detection_ns: int = 0) -> None:
        """The other end learns, without a word from this one, that the connection is dead."""
        self._clock.at(self._arrival() + detection_ns, self._tell_other, True, why)

    def _tell_other(self, gone: bool, reason: str) -> None:
        other = self.other
        if other is not None and not other.closed:
            other.end(gone=gone, reason=reason)

    def end(self, *, gone: bool, reason: str) -> None:
        """This end learns that the connection has ended."""
        self.closed = True
        self._held.clear()
        self.life.connection_ended(self, gone=gone, reason=reason)
