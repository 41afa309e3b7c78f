"""The client's data directory: its session, outbox and received-sets in one SQLite file (BRK-D1, BRK-FM6).

A turn is one transaction, committed to the disk before any packet of the turn leaves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ordercast.api.messages import Dedup
from ordercast.client.ports import NO_SEALS, MissedFilters, SavedClient, SavedReplay, SavedTopic
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic, origin_of, ticketed
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.log.files import PRIVATE_FILE, make_private
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.cuts import intervals, plain
from ordercast.pubsub.filters import allows
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector
from ordercast.pubsub.seals import cut

_FORMAT = 1
_FILE = "client.sqlite"
_BUSY_S = 0.2
"""Waiting for another process to let go of the directory: nothing else of the program runs meanwhile."""
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (
    topic TEXT PRIMARY KEY, receives INTEGER, granted INTEGER NOT NULL DEFAULT 0,
    counter INTEGER NOT NULL DEFAULT 0, untaken INTEGER NOT NULL DEFAULT 0,
    have BLOB NOT NULL DEFAULT x'80', base BLOB NOT NULL DEFAULT x'80'
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (topic TEXT, number INTEGER, body BLOB, PRIMARY KEY (topic, number)) STRICT,
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unanswered (place INTEGER PRIMARY KEY, body BLOB) STRICT;
CREATE TABLE IF NOT EXISTS history (place INTEGER PRIMARY KEY, topic TEXT, body BLOB) STRICT;
CREATE TABLE IF NOT EXISTS seals (place INTEGER PRIMARY KEY, seal BLOB) STRICT;
CREATE TABLE IF NOT EXISTS replays (topic TEXT PRIMARY KEY, body BLOB) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dedups (
    topic TEXT, dedup TEXT, published_ns INTEGER, origin TEXT, number INTEGER, seen_ns INTEGER,
    PRIMARY KEY (topic, dedup)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS safe (topic TEXT PRIMARY KEY, body BLOB) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS base_seals (topic TEXT PRIMARY KEY, body BLOB) STRICT, WITHOUT ROWID;
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Publication).decode
_decode_safe = msgspec.msgpack.Decoder(tuple[int, tuple[int, ...]]).decode
_decode_summary = msgspec.msgpack.Decoder(dict[Origin, tuple[int, tuple[int, ...]]]).decode
_decode_vector = msgspec.msgpack.Decoder(dict[Origin, int]).decode
_NOTHING = _encode({})
_decode_closed = msgspec.msgpack.Decoder(dict[str, tuple[int, ...]]).decode
_decode_replay = msgspec.msgpack.Decoder(SavedReplay).decode
_decode_missed = msgspec.msgpack.Decoder(MissedFilters).decode
_decode_seals = msgspec.msgpack.Decoder(dict[Origin, bytes]).decode


class _CachedTopic:
    """A topic's state in memory, to be written once a turn."""

    def __init__(self, saved: SavedTopic) -> None:
        self.receives = saved.receives
        self.granted = saved.granted
        self.counter = saved.counter
        self.untaken = saved.untaken
        self.have = Received(saved.have)
        self.base = dict(saved.base)
        self.base_seals = dict(saved.base_seals)
        self.history: list[tuple[int, Origin, int]] = []
        """Place in the file and id of every delivery that is kept, in order."""


class SqliteLedger:
    """A client's ledger in SQLite: `ClientLedger` for the machine, `TurnLedger` for the runtime."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / _FILE
        self._open = False
        self._dirty: set[Topic] = set()
        self._topics: dict[Topic, _CachedTopic] = {}
        self._places = 0
        self._sealed = False
        """Whether any seal has been written: most brokers on one machine give none."""
        try:
            make_private(directory)
            self.path.touch(PRIVATE_FILE)
            self.path.chmod(PRIVATE_FILE)  # SQLite gives the files beside it the same mode.
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=_BUSY_S)
            with ExitStack() as opening:
                opening.callback(self._db.close)
                self._prepare()
                self._read()
                opening.pop_all()
        except (sqlite3.Error, OSError, *NOT_DECODABLE, LookupError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise UsageError(f"data: {directory} is in use by another client") from None
            raise UsageError(f"data: {self.path} cannot be used: {' '.join(str(error).split())}") from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("BEGIN EXCLUSIVE")
        for statement in _TABLES.split(";\n"):
            self._db.execute(statement)
        self._check_format()
        self._db.execute("COMMIT")

    def _read(self) -> None:
        """Take into memory what must be there; what does not fit together is an error of some kind."""
        self._plain = origin_of(NodeId(str(self.fact("client"))), int(self.fact("session") or 0))
        self.origin = ticketed(self._plain, str(self.fact("ticket") or ""))
        self._closed = ClosedSessions(_decode_closed(self._bytes("closed") or _NOTHING))
        self._topics = {topic: _CachedTopic(saved) for topic, saved in self.saved().topics.items()}
        for place, topic, body in self._db.execute("SELECT place, topic, body FROM history ORDER BY place"):
            entry = _decode(body)
            self._topics[topic].history.append((place, entry.origin, entry.number))
            self._places = place
        self._sealed = self._db.execute("SELECT EXISTS (SELECT 1 FROM seals)").fetchone() == (1,)

    def _check_format(self) -> None:
        found = self.fact("format")
        if found is None:
            self._db.execute("INSERT INTO facts VALUES ('format', ?)", (_FORMAT,))
        elif found != _FORMAT:
            raise UsageError(f"data: {self.path} has format {found}; this version reads {_FORMAT}")

    # Who this client is

    def fact(self, name: str) -> str | int | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None else None

    def _bytes(self, name: str) -> bytes:
        found: object = self.fact(name)
        return found if isinstance(found, bytes) else b""

    def set_fact(self, name: str, value: str | int | bytes) -> None:
        self._begin()
        self._write_one("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def begin_session(self, client: str, session: int, *, told: bool = True, since_ms: int = 0) -> None:
        """A first session, or a new one after the broker tree gave the last one up, which had begun at that time.

        What had been delivered stays delivered. What the last session had published is its own. `told`: the application
        knows that it may have missed something; otherwise it is told where a topic is not kept.
        """
        patterns = self._patterns("watched")
        if patterns:
            earlier = self._missed()
            since = min(since_ms, earlier.since_ms) if earlier.patterns else since_ms
            self.missed(MissedFilters(patterns, since, tells=not told))
        self.set_fact("client", client)
        self.set_fact("session", session)
        self.set_fact("attach_no", 0)
        self.set_fact("lost", 0)
        self.set_fact("granted", 0)
        self.followed(())
        self._plain = origin_of(NodeId(client), session)
        self.ticket("", b"")
        self._write_one("DELETE FROM safe")
        for topic, kept in self._topics.items():
            kept.granted = False
            kept.counter = 0
            taken = len(kept.history) - kept.untaken
            untaken = kept.history[taken:]
            if kept.receives:
                past = self._go_on_from_the_past(topic, kept, told=told, by_filter=allows(patterns, topic))
                untaken = untaken[: past.before]
            kept.untaken = len(untaken)
            self._drop(kept, [one for one in kept.history if one not in untaken], untaken)
            self._dirty.add(topic)
        self.flush()

    def _go_on_from_the_past(self, topic: Topic, kept: _CachedTopic, *, told: bool, by_filter: bool) -> SavedReplay:
        """ARC-S6: what passed since the last session was heard of is read where the topic is kept."""
        row = self._db.execute("SELECT body FROM replays WHERE topic = ?", (topic,)).fetchone()
        if row is None:
            # It was a member when it heard that they are closed: it had everything of them.
            reached = kept.have.vector() | intervals(self._closed.summary())
            had = {origin: extras for origin, (_, extras) in kept.have.summary().items() if extras}
            past = SavedReplay(reached, before=kept.untaken, had=had)
        else:
            last = _decode_replay(row[0])
            before = kept.untaken if last.until is None else last.before
            past = SavedReplay(last.progress, untouched=last.untouched, before=before, had=last.had)
            if last.until is not None:
                self._forget_what_waited(kept, last)
        past = replace(past, optional=told or by_filter, tells=by_filter and not told)
        self.replay(topic, past)
        return past

    def _forget_what_waited(self, kept: _CachedTopic, last: SavedReplay) -> None:
        """What came live behind the past was not handed over: it is read with the past, or comes again."""
        kept.have = Received({origin: (0, extras) for origin, extras in last.had.items()})
        kept.have.raise_to(plain(last.progress))
        kept.have.raise_to(kept.base)

    def saved(self) -> SavedClient:
        """The state that the next life goes on from."""
        topics: dict[Topic, SavedTopic] = {}
        rows = self._db.execute("SELECT topic, receives, granted, counter, untaken, have, base FROM topics")
        for topic, receives, granted, counter, untaken, have, base in rows:
            topics[Topic(topic)] = SavedTopic(
                None if receives is None else bool(receives), bool(granted), counter, untaken=untaken,
                have=_decode_summary(have), base=_decode_vector(base),
            )  # fmt: skip
        for topic, body in self._db.execute("SELECT topic, body FROM outbox ORDER BY topic, number"):
            topics[Topic(topic)].outbox.append(replace(_decode(body), origin=self.origin))
        rows = self._db.execute("SELECT topic, body, seal FROM history LEFT JOIN seals USING (place) ORDER BY place")
        for topic, body, seal in rows:
            entry = _decode(body)
            topics[Topic(topic)].history.append(entry)
            if seal is not None:
                topics[Topic(topic)].seals[entry.origin, entry.number] = seal
        for topic, body in self._db.execute("SELECT topic, body FROM base_seals"):
            topics[Topic(topic)].base_seals = _decode_seals(body)
        for topic, body in self._db.execute("SELECT topic, body FROM replays"):
            topics[Topic(topic)].replay = _decode_replay(body)
        for topic, body in self._db.execute("SELECT topic, body FROM safe"):
            topics[Topic(topic)].safe = _decode_safe(body)
        return SavedClient(
            int(self.fact("attach_no") or 0), topics, self._patterns("watched"), self._patterns("followed"),
            str(self.fact("ticket") or ""), self._bytes("ticket_seal"), self._closed.summary(),
            bool(self.fact("granted")), self._missed(), self._gaps(),
        )  # fmt: skip

    def _patterns(self, name: str) -> tuple[str, ...]:
        return tuple(filter(None, str(self.fact(name) or "").split(" ")))

    def _gaps(self) -> tuple[Topic, ...]:
        return tuple(map(Topic, self._patterns("gaps")))

    def _missed(self) -> MissedFilters:
        body = self._bytes("missed")
        return _decode_missed(body) if body else MissedFilters()

    # What the machine writes down

    def attach(self, attach_no: int) -> None:
        self.set_fact("attach_no", attach_no)

    def ticket(self, ticket: str, seal: bytes) -> None:
        """The outbox is given its origin when it is read."""
        self.set_fact("ticket", ticket)
        self.set_fact("ticket_seal", seal)
        self.origin = ticketed(self._plain, ticket)

    def closed(self, closed: Closed) -> None:
        self._closed.merge(closed)
        self.set_fact("closed", _encode(self._closed.summary()))
        for topic in sorted(self._topics):
            self._fold(self._of(topic), topic)

    def _fold(self, kept: _CachedTopic, topic: Topic) -> None:
        closed = self._closed
        for origin in [origin for origin in {*kept.have.summary(), *kept.base} if origin in closed]:
            kept.have.forget(origin)
            kept.base.pop(origin, None)
            kept.base_seals.pop(origin, None)
        if kept.base_seals:
            self._write_one("INSERT OR REPLACE INTO base_seals VALUES (?, ?)", (topic, _encode(kept.base_seals)))
        taken = len(kept.history) - kept.untaken
        gone = [one for one in kept.history[:taken] if one[1] in closed]
        stay = [one for one in kept.history[:taken] if one[1] not in closed]
        self._drop(kept, gone, stay + kept.history[taken:])

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        kept = self._of(topic)
        kept.receives, kept.granted = receives, granted
        if receives is None:
            self._drop(kept, kept.history, [])
            kept.untaken = 0

    def safe(self, topic: Topic, low: int, extras: tuple[int, ...]) -> None:
        self._of(topic)
        self._write_one("INSERT OR REPLACE INTO safe VALUES (?, ?)", (topic, _encode((low, extras))))

    def watched(self, patterns: tuple[str, ...]) -> None:
        self.set_fact("watched", " ".join(patterns))

    def followed(self, patterns: tuple[str, ...]) -> None:
        self.set_fact("followed", " ".join(patterns))

    def granted(self) -> None:
        self.set_fact("granted", 1)

    def missed(self, filters: MissedFilters) -> None:
        self.set_fact("missed", _encode(filters))

    def gap(self, topic: Topic, *, told: bool) -> None:
        rest = {*self._gaps()} - {topic}
        self.set_fact("gaps", " ".join(sorted(rest if told else rest | {topic})))

    def published(self, topic: Topic, publications: Sequence[Publication]) -> None:
        kept = self._of(topic)
        self._write(
            "INSERT OR REPLACE INTO outbox VALUES (?, ?, ?)",
            [(topic, publication.number, _encode(publication)) for publication in publications],
        )
        if publications:
            kept.counter = max(kept.counter, publications[-1].number)

    def refused(self, topic: Topic, number: int) -> None:
        self._of(topic)
        self._write_one("DELETE FROM outbox WHERE topic = ? AND number = ?", (topic, number))

    def delivered(self, topic: Topic, entries: Sequence[Publication], seals: bytes = b"") -> None:
        kept = self._of(topic)
        first = self._places + 1
        self._places += len(entries)
        self._write(
            "INSERT INTO history VALUES (?, ?, ?)",
            [(place, topic, _encode(entry)) for place, entry in enumerate(entries, start=first)],
        )
        if seals:
            self._sealed = True
            self._write("INSERT INTO seals VALUES (?, ?)", list(enumerate(cut(seals, len(entries)), start=first)))
        kept.history += [(place, entry.origin, entry.number) for place, entry in enumerate(entries, start=first)]
        kept.untaken += len(entries)
        mine = self.origin
        for entry in entries:
            kept.have.add(entry.origin, entry.number)
        own = [(topic, entry.number) for entry in entries if entry.origin == mine]
        if own:
            self._write("DELETE FROM outbox WHERE topic = ? AND number = ?", own)

    def consumed(self, topic: Topic, count: int) -> None:
        kept = self._of(topic)
        kept.untaken = max(0, kept.untaken - count)

    def base(self, topic: Topic, base: Vector, seals: Mapping[Origin, bytes] = NO_SEALS) -> None:
        kept = self._of(topic)
        if kept.base_seals != seals:
            kept.base_seals = dict(seals)
            self._write_one("INSERT OR REPLACE INTO base_seals VALUES (?, ?)", (topic, _encode(kept.base_seals)))
        grown = {origin: number for origin, number in base.items() if number > kept.base.get(origin, 0)}
        kept.base.update(grown)
        kept.have.raise_to(grown)
        low = kept.base.get
        taken = len(kept.history) - kept.untaken
        stable = [kept_one for kept_one in kept.history[:taken] if kept_one[2] <= low(kept_one[1], 0)]
        stay = [kept_one for kept_one in kept.history[:taken] if kept_one[2] > low(kept_one[1], 0)]
        self._drop(kept, stable, stay + kept.history[taken:])
        if self.origin in grown:
            self._write_one("DELETE FROM outbox WHERE topic = ? AND number <= ?", (topic, grown[self.origin]))

    def replay(self, topic: Topic, replay: SavedReplay | None) -> None:
        kept = self._of(topic)
        if replay is None:
            self._write_one("DELETE FROM replays WHERE topic = ?", (topic,))
            return
        self._write_one("INSERT OR REPLACE INTO replays VALUES (?, ?)", (topic, _encode(replay)))
        if replay.until is not None:
            kept.have.raise_to(plain(replay.progress))

    def lost(self, unanswered: Sequence[Publication]) -> None:
        self.set_fact("lost", 1)  # The next connect begins a new session.
        self._write_one("DELETE FROM outbox")
        self._write("INSERT INTO unanswered (body) VALUES (?)", [(_encode(publication),) for publication in unanswered])

    def unanswered(self) -> tuple[Publication, ...]:
        """In the order of publication on each topic."""
        return tuple(_decode(body) for (body,) in self._db.execute("SELECT body FROM unanswered ORDER BY place"))

    def forget_unanswered(self) -> None:
        self._begin()
        self._write_one("DELETE FROM unanswered")

    def remember_dedups(self, known: Sequence[Dedup]) -> None:
        if known:
            self._begin()
            rows = [(one.topic, one.dedup, one.published_ns, *one.first, one.seen_ns) for one in known]
            self._write("INSERT OR REPLACE INTO dedups VALUES (?, ?, ?, ?, ?, ?)", rows)

    def forget_dedups(self, known: Sequence[Dedup]) -> None:
        if known:
            self._begin()
            self._write("DELETE FROM dedups WHERE topic = ? AND dedup = ?", [(one.topic, one.dedup) for one in known])

    def dedups(self) -> list[Dedup]:
        """The idempotence ids that were delivered in this client's earlier lives."""
        rows = self._db.execute("SELECT topic, dedup, published_ns, origin, number, seen_ns FROM dedups")
        return [
            Dedup(topic, dedup, published, (origin, number), seen)
            for topic, dedup, published, origin, number, seen in rows
        ]

    def _drop(
        self, kept: _CachedTopic, gone: list[tuple[int, Origin, int]], stay: list[tuple[int, Origin, int]]
    ) -> None:
        places = [(place,) for place, _, _ in gone]
        self._write("DELETE FROM history WHERE place = ?", places)
        if self._sealed:
            self._write("DELETE FROM seals WHERE place = ?", places)
        kept.history = stay

    def _of(self, topic: Topic) -> _CachedTopic:
        self._begin()
        self._dirty.add(topic)
        kept = self._topics.get(topic)
        if kept is None:
            kept = self._topics[topic] = _CachedTopic(SavedTopic())
        return kept

    # What the runtime calls

    def _begin(self) -> None:
        if not self._open:
            self._open = True
            self._write_one("BEGIN IMMEDIATE")

    def flush(self) -> None:
        """Commit the turn. A disk that does not keep it is an OSError, and the client stops."""
        if not self._open:
            return
        self._write(
            "INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?, ?, ?, ?)",
            [self._row(topic) for topic in sorted(self._dirty)],
        )
        self._write_one("COMMIT")
        self._dirty.clear()
        self._open = False

    def _write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        try:
            self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise OSError(f"data: {self.path}: {error}") from None

    def _write_one(self, statement: str, row: tuple[object, ...] = ()) -> None:
        try:
            self._db.execute(statement, row)
        except sqlite3.Error as error:
            raise OSError(f"data: {self.path}: {error}") from None

    def _row(self, topic: Topic) -> tuple[object, ...]:
        kept = self._topics[topic]
        return (
            topic, kept.receives, kept.granted, kept.counter, kept.untaken,
            _encode(kept.have.summary()), _encode(kept.base),
        )  # fmt: skip

    def close(self) -> None:
        self.flush()
        self._db.close()

    def abandon(self) -> None:
        self._db.close()
