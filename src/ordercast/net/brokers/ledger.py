"""The durable log of a broker: what it holds, in a directory that outlives its process.

    DIR/lock            held by the process that uses the directory
    DIR/life            the last life that began here
    DIR/ledger/         the log (`net/log`): first everything that was held when it was begun, then what was added since

What was written in one turn is one frame, made durable before any packet of the turn leaves (`fsync = "always"`).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.broker.place import SavedBroker
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.net.log.files import Disk, Fsync
from ordercast.net.log.log import DamagedLogError, Log
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.pubsub.tree_packets import KnownDirectory, Stamp

_LEAST_BYTES = 1 << 24
"""A segment smaller than this is not worth beginning anew."""
_ENTRIES_A_RECORD = 500
_LONG_AGO: Stamp = (0, 1)


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """Base of what a broker writes down."""


class _Entries(_Record, frozen=True, array_like=True, tag=1):
    topic: Topic
    entries: tuple[Publication, ...]
    prepared: bool = False


class _Base(_Record, frozen=True, array_like=True, tag=2):
    topic: Topic
    base: Vector


class _Forget(_Record, frozen=True, array_like=True, tag=3):
    topic: Topic


class _Roster(_Record, frozen=True, array_like=True, tag=4):
    """Everything about members, where a log begins."""

    roster: dict[Topic, tuple[Origin, ...]]
    fenced: dict[Origin, int]


class _Term(_Record, frozen=True, array_like=True, tag=5):
    number: int


class _Directory(_Record, frozen=True, array_like=True, tag=6):
    """Of earlier versions: nobody knows any more how old it is."""

    directory: dict[NodeId, str]


class _KnownDirectory(_Record, frozen=True, array_like=True, tag=9):
    directory: KnownDirectory


class _Salvaged(_Record, frozen=True, array_like=True, tag=7):
    """A part of what came before is lost, and with it perhaps a term."""


class _RosterNews(_Record, frozen=True, array_like=True, tag=8):
    """Changes since the last record about members."""

    roster: dict[Topic, tuple[Origin, ...]]
    gone: tuple[Topic, ...]
    fenced: dict[Origin, int]
    forgotten: tuple[Origin, ...]


class _Closed(_Record, frozen=True, array_like=True, tag=20):
    closed: Closed


_Any = _Entries | _Base | _Forget | _Roster | _Term | _Directory | _Salvaged | _RosterNews | _KnownDirectory | _Closed
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Any])


class DiskBrokerLedger:
    """A broker's ledger on disk: implements the port of the same name; `flush` ends the turn."""

    def __init__(
        self, directory: Path, *, fsync: Fsync = "always", disk: Disk | None = None, salvage: bool = False
    ) -> None:
        """`salvage`: where the log is damaged, begin with what is readable of it."""
        self.flushes = 0
        self._held = MemoryBrokerLedger()
        self._whole = True
        """Whether no term is lost that counted after the last one that is known."""
        self._fresh: list[_Any] = []
        try:
            self.log = Log(
                directory / "ledger", "broker", least_bytes=_LEAST_BYTES, fsync=fsync, disk=disk, salvage=salvage
            )
        except DamagedLogError as error:
            raise DamagedLogError(f"{error}; --salvage starts with all that is readable") from None
        for record in self.log.records:
            for written in self.log.decoded(record, _decoder):
                self._apply(written)
        if self.log.salvaged:
            self._whole = False
        if not self.log.records or self.log.salvaged:
            self.log.begin(self._beginning())
        self.log.records = []

    def saved(self) -> SavedBroker:
        """The state that earlier lives have left."""
        saved = self._held.saved()
        saved.whole = self._whole
        return saved

    # What the broker writes down

    def entries(self, topic: Topic, entries: tuple[Publication, ...], *, prepared: bool = False) -> None:
        self._add(_Entries(topic, entries, prepared))

    def base(self, topic: Topic, base: Vector) -> None:
        self._add(_Base(topic, dict(base)))

    def forget(self, topic: Topic) -> None:
        self._add(_Forget(topic))

    def roster(
        self, changed: dict[Topic, tuple[Origin, ...]], ended: dict[Origin, int], forgotten: tuple[Origin, ...] = ()
    ) -> None:
        here = {topic: members for topic, members in changed.items() if members}
        gone = tuple(topic for topic, members in changed.items() if not members)
        self._add(_RosterNews(here, gone, dict(ended), forgotten))

    def closed(self, closed: Closed) -> None:
        self._add(_Closed(dict(closed)))

    def term(self, number: int) -> None:
        self._add(_Term(number))

    def directory(self, directory: KnownDirectory) -> None:
        self._add(_KnownDirectory(directory))

    # What the runtime calls

    def flush(self) -> None:
        """One write and, with `always`, one fsync for all that the turn has added."""
        if not self._fresh:
            return
        body = _encoder.encode(self._fresh)
        self._fresh = []
        self.log.write(body)
        self.flushes += 1
        if self.log.oversized:
            self.log.compact(self._beginning())

    def sync(self) -> None:
        """Make durable what was written; for `interval`, from time to time."""
        self.log.sync()

    def close(self) -> None:
        if self.log.is_open:
            self.flush()
            self.log.close()

    def abandon(self) -> None:
        self.log.abandon()

    # Inside

    def _add(self, record: _Any) -> None:
        self._apply(record)
        self._fresh.append(record)

    def _apply(self, record: _Any) -> None:
        held = self._held
        match record:
            case _Entries(topic, entries, prepared):
                held.entries(topic, entries, prepared=prepared)
            case _Base(topic, base):
                held.base(topic, base)
            case _Forget(topic):
                held.forget(topic)
            case _Roster(roster, fenced):
                held.roster(roster, fenced)
            case _RosterNews(roster, gone, fenced, forgotten):
                held.roster({**roster, **dict.fromkeys(gone, ())}, fenced, forgotten)
            case _Closed(closed):
                held.closed(closed)
            case _Term(number):
                held.term(number)
                self._whole = True
            case _Salvaged():
                self._whole = False
            case _KnownDirectory(directory):
                held.directory(directory)
            case _Directory(members):
                held.directory(KnownDirectory((), _LONG_AGO, members))

    def _beginning(self) -> list[bytes]:
        """Everything that is held, for a log that begins anew."""
        return [_encoder.encode([record]) for record in _records(self.saved())]


def _records(saved: SavedBroker) -> list[_Any]:
    """The fewest records that lead to this state: what a compacted log begins with."""
    told: list[_Any] = [_Term(saved.term_number), *([] if saved.whole else [_Salvaged()])]
    told += [_Roster(saved.roster, saved.fenced), _KnownDirectory(saved.directory)]
    told += [_Closed(saved.closed)] if saved.closed else []
    told += [_Base(topic, base) for topic, base in saved.base.items()]
    for topic, entries in saved.entries.items():
        logged = len(entries) - saved.prepared.get(topic, 0)
        for some, prepared in ((entries[:logged], False), (entries[logged:], True)):
            for i in range(0, len(some), _ENTRIES_A_RECORD):
                told.append(_Entries(topic, tuple(some[i : i + _ENTRIES_A_RECORD]), prepared))
    return told
