"""The options of the source and the sink, checked before anything is done with them.

They are checked where Spark makes the data source: what a reader's constructor says gets lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from ordercast.api import Position, UsageError
from ordercast.api.options import level_of
from ordercast.core.ids import Topic
from ordercast.net.wire.credentials import Tls, split_address
from ordercast.pubsub.filters import allows, check_filter, check_topic, is_filter

EARLIEST, LATEST = "earliest", "latest"
_CONNECTION = ("brokers", "broker", "user", "token", "cluster", "tls.ca", "tls.cert", "tls.key", "timeout")
_READ = (
    "subscribe", "subscribePattern", "topics", "startingOffsets", "startingTimestamp", "endingOffsets",
    "maxOffsetsPerTrigger", "failOnDataLoss", "minPartitions", "includeHeaders", "cut",
)  # fmt: skip
_WRITE = ("topic", "guarantee")
KNOWN = (*_CONNECTION, *_READ, *_WRITE)
_SPARKS_OWN = {"checkpointlocation", "path", "queryname"}
"""What Spark itself hands on with the options of a writer."""


_OF_EXPRESSIONS = frozenset("\\^()[]|")
_FILTERS = "it takes filters: '*' is one segment, '>' at the end all that follow, commas between several"


class Connection(msgspec.Struct, frozen=True):
    """The addresses of the brokers, and the identity that asks."""

    brokers: tuple[str, ...]
    user: str = ""
    token: str = ""
    cluster: str = ""
    tls: Tls | None = None
    timeout_s: float = 30.0


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a query that reads."""

    connection: Connection
    topics: tuple[str, ...]
    """Or filters, of which all kept topics are read, those that begin while the query runs included."""
    by_filter: bool
    start: str | Position | dt.datetime
    """`earliest`, `latest`, a position or a time."""
    end: str | Position
    most_offsets: int
    """In one micro-batch; 0: any number."""
    fail_on_data_loss: bool
    least_partitions: int
    headers: bool
    across: bool
    """Micro-batches end at positions that are closed across all topics; else within each topic."""


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a query that publishes."""

    connection: Connection
    topic: str
    guarantee: str


class Options:
    """The options as Spark hands them over; names in any case, values are texts."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower() for name in KNOWN} | _SPARKS_OWN
        self._given = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in known:
                raise UsageError(f"option {name}: there is none of that name; there are {', '.join(KNOWN)}")
        if "path" in self._given:
            raise UsageError("option path: topics have no path; say subscribe to read, topic to write")

    def text(self, name: str, default: str = "") -> str:
        return str(self._given.get(name.lower(), default)).strip()

    def flag(self, name: str, *, default: bool) -> bool:
        said = self.text(name, "true" if default else "false").lower()
        if said not in ("true", "false"):
            raise UsageError(f"option {name}: {said!r} is neither true nor false")
        return said == "true"

    def count(self, name: str) -> int:
        """A number above 0; 0 if the option is not given."""
        said = self.text(name)
        if said and not (said.isdecimal() and int(said) > 0):
            raise UsageError(f"option {name}: {said!r} is no whole number above 0")
        return int(said or 0)

    def connection(self) -> Connection:
        brokers = self._list(self._one_of("brokers", "broker"))
        if not brokers:
            raise UsageError("option brokers: HOST:PORT of one broker or several, with commas between them, is needed")
        for broker in brokers:
            split_address(broker)
        tls = Tls(ca=self.text("tls.ca"), cert=self.text("tls.cert"), key=self.text("tls.key"))
        return Connection(
            brokers, self.text("user"), self.text("token"), self.text("cluster"),
            tls if tls != Tls() else None, self._seconds("timeout", 30.0),
        )  # fmt: skip

    def _seconds(self, name: str, default: float) -> float:
        said = self.text(name, str(default))
        try:
            seconds = float(said)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise UsageError(f"option {name}: {said!r} is no number of seconds above 0")
        return seconds

    def reading(self, *, stream: bool) -> ReadOptions:
        """The checked options of a reading query. A stream begins at `latest` by default, a batch at `earliest`."""
        topics, by_filter = self._topics()
        across = self._across()
        if by_filter and not across:
            raise UsageError(
                "option cut: it is 'across' with subscribePattern: only all brokers together know the topics"
            )
        return ReadOptions(
            self.connection(), topics, by_filter, self._start(stream=stream),
            self._end(stream=stream), self.count("maxOffsetsPerTrigger"), self.flag("failOnDataLoss", default=True),
            self.count("minPartitions"), self.flag("includeHeaders", default=False), across,
        )  # fmt: skip

    def _topics(self) -> tuple[tuple[str, ...], bool]:
        """The topics to read, or the filters that take them in; whether they are filters."""
        option = self._one_of("subscribe", "subscribePattern", "topics")
        names = self._list(option)
        if not names:
            raise UsageError(
                "option subscribe: the topics to read, with commas between them, are needed, or subscribePattern"
            )
        by_filter = option == "subscribePattern" or (option == "topics" and any(map(is_filter, names)))
        for name in names:
            if by_filter:
                _check_filter(option, name)
            else:
                check_topic(name)
        return names, by_filter

    def _one_of(self, *options: str) -> str:
        """The one that is given, or the first."""
        given = [name for name in options if self.text(name)]
        if len(given) > 1:
            raise UsageError(f"option {given[1]}: {given[0]} is given too; only one can be meant")
        return given[0] if given else options[0]

    def _list(self, name: str) -> tuple[str, ...]:
        parts = (part.strip() for part in self.text(name).split(","))
        return tuple(dict.fromkeys(part for part in parts if part))

    def _across(self) -> bool:
        said = self.text("cut", "across").lower()
        if said not in ("across", "topic"):
            raise UsageError(f"option cut: {said!r} is neither 'across' nor 'topic'")
        return said == "across"

    def _start(self, *, stream: bool) -> str | Position | dt.datetime:
        if at := self.text("startingTimestamp"):
            if self.text("startingOffsets"):
                raise UsageError("option startingTimestamp: startingOffsets is given too; only one can be meant")
            if not at.isdecimal() or int(at) >= _LAST_MS:
                raise UsageError(f"option startingTimestamp: {at!r} is no number of milliseconds since 1970")
            return dt.datetime.fromtimestamp(int(at) / 1000, dt.UTC)
        said = self._offsets("startingOffsets", LATEST if stream else EARLIEST)
        if said == LATEST and not stream:
            raise UsageError("option startingOffsets: a batch that begins at 'latest' has nothing to read")
        return said

    def _end(self, *, stream: bool) -> str | Position:
        if stream and self.text("endingOffsets"):
            raise UsageError("option endingOffsets: a stream has no end; use read instead of readStream")
        said = self._offsets("endingOffsets", LATEST)
        if said == EARLIEST:
            raise UsageError("option endingOffsets: a batch that ends at 'earliest' has nothing to read")
        return said

    def _offsets(self, name: str, default: str) -> str | Position:
        said = self.text(name, default)
        if said in (EARLIEST, LATEST):
            return said
        try:
            position = Position.parse(said)
        except UsageError:
            raise UsageError(f"option {name}: {said[:40]!r} is neither earliest, latest nor a position") from None
        read, _ = self._topics()
        return Position({Topic(topic): position.of(topic) for topic in position.topics if allows(read, topic)})

    def writing(self) -> WriteOptions:
        """The checked options of a publishing query: to the topic of the option, or that of a column."""
        topic, guarantee = self.text("topic"), self.text("guarantee", "causal")
        if topic:
            check_topic(topic)
        level_of(guarantee)
        return WriteOptions(self.connection(), topic, guarantee)


def _check_filter(option: str, pattern: str) -> None:
    if set(pattern) & _OF_EXPRESSIONS:
        raise UsageError(f"option {option}: {pattern!r} looks like a regular expression; {_FILTERS}")
    try:
        check_filter(pattern)
    except UsageError as error:
        raise UsageError(f"option {option}: {error}") from None


_LAST_MS = 253_402_300_800_000
"""The year 10000: no calendar of Python's goes beyond it."""
