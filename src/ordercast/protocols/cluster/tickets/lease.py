"""A process's lease of an entry: how it is got, kept and given back. docs/protocols/cluster.md, CLU-6."""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from ordercast.core.chance import mix
from ordercast.core.errors import UsageError
from ordercast.core.messages import Packet
from ordercast.core.state import State
from ordercast.protocols.cluster.events import MAX_EPOCH, MAX_SEQ, Value, epoch_of, value_of
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import (
    Claim,
    Denied,
    Granted,
    Release,
    Renew,
    Renewed,
    TicketAsked,
    TicketState,
)  # fmt: skip
from ordercast.protocols.cluster.tickets.manager import Cast
from ordercast.protocols.cluster.tickets.ring import group_of

FOR_EVER = 1 << 62
_ROLLS_BITS = 12


class Phase(enum.Enum):
    """The phase of a process with the entry that it wants or has."""

    NONE = "none"
    ASKING = "asking"
    CLAIMING = "claiming"
    OWNER = "owner"
    BACKING_OFF = "backing off"


class Grant(msgspec.Struct, frozen=True):
    """An entry in one epoch: whoever has it makes the values of this epoch, and nobody else ever does."""

    entry: int
    epoch: int
    base: Value
    """The highest value of former epochs that the managers know."""


class Lease(State):
    """The part that talks to managers. Answers `pause_ns`: how long to wait before `time_out` is called."""

    constant: ClassVar[tuple[str, ...]] = ("cluster", "options", "salt")
    durable: ClassVar[tuple[str, ...]] = ("epoch", "seq", "until_ns", "nonce", "attempts")

    def __init__(self, cluster: str, options: ClusterOptions, salt: int) -> None:
        self.cluster = cluster
        self.options = options
        self.salt = salt
        self.phase = Phase.NONE
        self.entry = 0
        self.epoch = 0
        self.seq = 0
        """How many updates this process made under its grant."""
        self.until_ns = 0
        """By the own clock: not a single update from then on."""
        self.nonce = 0
        self.sent_ns = 0
        """When the question was sent whose answers are counted."""
        self.answers: dict[str, tuple[int, bool, Value]] = {}
        self.attempts = 0
        self.taken: dict[int, int] = {}
        """By entry: until when it is not worth asking for."""
        self.denials = 0

    @property
    def quorum(self) -> int:
        return self.options.tolerated + 1

    @property
    def lease_ns(self) -> int:
        return round(self.options.lease_ms * 1e6)

    @property
    def value(self) -> Value:
        """The last value made, 0 if none was."""
        return value_of(self.epoch, self.seq) if self.seq else 0

    def is_valid(self, now_ns: int) -> bool:
        return self.phase is Phase.OWNER and now_ns < self.until_ns and self.seq < MAX_SEQ

    def own_for_ever(self, entry: int, life: int) -> Grant:
        """CLU-6.10: the entry was given by the configuration; every life has epochs of its own."""
        first = (life << _ROLLS_BITS) + 1
        if first + (1 << _ROLLS_BITS) > MAX_EPOCH:
            raise UsageError(
                f"life {life}: an entry that is given for ever outlives {MAX_EPOCH >> _ROLLS_BITS} of them"
            )
        if self.until_ns != FOR_EVER:
            self.epoch, self.seq = first, 0
        self.phase, self.entry, self.until_ns = Phase.OWNER, entry, FOR_EVER
        return Grant(entry, self.epoch, 0)

    def next_epoch(self) -> bool:
        """CLU-6.10: an entry that is given for ever goes on in a new epoch when all numbers of one are used up."""
        if self.until_ns != FOR_EVER or self.seq < MAX_SEQ:
            return False
        self.epoch, self.seq = self.epoch + 1, 0
        return True

    # Acquire

    def ask(self, now_ns: int, cast: Cast) -> None:
        """CLU-6.1: ask the managers of one entry."""
        self.attempts += 1
        self.phase, self.entry, self.sent_ns, self.answers = Phase.ASKING, self._pick(now_ns), now_ns, {}
        self.nonce += 1
        self._tell_group(TicketAsked(self.cluster, self.entry, self.nonce), cast)

    def _pick(self, now_ns: int) -> int:
        """Those first that are not known to be taken; among them by chance."""
        entries = range(self.options.entries)
        free = [entry for entry in entries if self.taken.get(entry, 0) <= now_ns] or list(entries)
        return free[mix(self.salt, self.attempts) % len(free)]

    def receive(self, manager: str, packet: Packet, now_ns: int, cast: Cast) -> Grant | None:
        """An answer of a manager; the grant if it makes this process the owner."""
        if manager not in self._group():
            return None
        match packet:
            case TicketState():
                self._asked(manager, packet, now_ns, cast)
            case Granted():
                return self._granted(manager, packet, now_ns)
            case Denied():
                self._denied(packet, now_ns, cast)
            case Renewed():
                self._renewed(manager, packet)
        return None

    def _asked(self, manager: str, packet: TicketState, now_ns: int, cast: Cast) -> None:
        """CLU-6.3: claim the next epoch, unless somebody has the entry."""
        if self.phase is not Phase.ASKING or packet.entry != self.entry or packet.nonce != self.nonce:
            return
        self.answers[manager] = packet.promised, packet.busy, packet.base
        if packet.busy:
            self._mark_taken(now_ns)
        elif len(self.answers) >= self.quorum:
            epoch = max(promised for promised, _, _ in self.answers.values()) + 1
            if epoch > MAX_EPOCH:
                self._mark_taken(now_ns)
                return
            self.phase, self.epoch, self.sent_ns, self.answers = Phase.CLAIMING, epoch, now_ns, {}
            self._tell_group(Claim(self.cluster, self.entry, epoch), cast)

    def _granted(self, manager: str, packet: Granted, now_ns: int) -> Grant | None:
        """CLU-6.5: a quorum makes an owner, if it answers in time."""
        mine = self.phase is Phase.CLAIMING and packet.entry == self.entry and packet.epoch == self.epoch
        if not mine or now_ns - self.sent_ns >= self.options.claim_ms * 1e6:
            return None
        self.answers[manager] = packet.epoch, False, packet.base
        if len(self.answers) < self.quorum:
            return None
        self.phase, self.seq, self.denials = Phase.OWNER, 0, 0
        self.until_ns = self._safe_until()
        base = max(base for _, _, base in self.answers.values())
        return Grant(self.entry, self.epoch, base if epoch_of(base) < self.epoch else 0)

    def _safe_until(self) -> int:
        """CLU-6.5: no manager that counted from a later moment, with a faster clock, gives it away before."""
        return self.sent_ns + round(self.lease_ns * (1 - 2 * self.options.drift))

    def _denied(self, packet: Denied, now_ns: int, cast: Cast) -> None:
        if self.phase is Phase.CLAIMING and packet.entry == self.entry and packet.epoch == self.epoch:
            self.give_up_claim(now_ns, cast)

    def _mark_taken(self, now_ns: int) -> None:
        self.taken[self.entry] = now_ns + self.lease_ns // 2
        self.phase = Phase.BACKING_OFF
        self.denials += 1

    def give_up_claim(self, now_ns: int, cast: Cast) -> None:
        """CLU-6.5: no quorum: whoever gave it to this process may give it to the next."""
        if self.phase is Phase.CLAIMING:
            self._tell_group(Release(self.cluster, self.entry, self.epoch, 0), cast)
        self._mark_taken(now_ns)

    def pause_ns(self, now_ns: int) -> int:
        """CLU-6.5: how long to wait before the next attempt: by chance, and longer the more often it failed."""
        untried = any(self.taken.get(entry, 0) <= now_ns for entry in range(self.options.entries))
        longest = round(self.options.claim_ms * 1e6) * (1 if untried else min(8, 1 + self.denials))
        return 1 + mix(self.salt, self.attempts, 7) % max(1, longest // 4 if untried else longest)

    # Renew and release

    def renew(self, now_ns: int, cast: Cast) -> None:
        """CLU-6.6: tell the managers that the owner is still there."""
        self.nonce += 1
        self.sent_ns, self.answers = now_ns, {}
        self._tell_group(Renew(self.cluster, self.entry, self.epoch, self.nonce, self.value), cast)

    def _renewed(self, manager: str, packet: Renewed) -> None:
        mine = self.phase is Phase.OWNER and packet.entry == self.entry and packet.epoch == self.epoch
        if mine and packet.nonce == self.nonce:
            self.answers[manager] = packet.epoch, False, 0
            if len(self.answers) >= self.quorum:
                self.until_ns = max(self.until_ns, self._safe_until())

    def end(self) -> None:
        """It has no entry and asks for none."""
        self.phase = Phase.NONE

    def release(self, cast: Cast) -> None:
        """CLU-6.7: the entry is free for others at once."""
        if self.phase is Phase.OWNER and self.until_ns != FOR_EVER:
            self._tell_group(Release(self.cluster, self.entry, self.epoch, self.value), cast)
        elif self.phase is Phase.CLAIMING:
            self._tell_group(Release(self.cluster, self.entry, self.epoch, 0), cast)
        self.phase = Phase.NONE

    def _group(self) -> tuple[str, ...]:
        if not self.options.managers:
            return ()
        return group_of(self.cluster, self.entry, self.options.managers, self.options.tolerated)

    def _tell_group(self, packet: Packet, cast: Cast) -> None:
        for address in self._group():
            cast(address, packet)
