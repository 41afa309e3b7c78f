"""Positions: how far a reader of kept topics has come, as a cut that means the same at every copy."""

from __future__ import annotations

import base64
import datetime as dt
import zlib
from collections.abc import Mapping

import msgspec

from ordercast.client.history import EARLIEST, Start, at
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.cuts import folded, is_interval, senseless_interval, within
from ordercast.pubsub.received import Vector

_PREFIX = "cut1."
_LONGEST = 1 << 24
_MOST = 1 << 53
_NOW = "now"
LATEST = "last-of-each-key"
_decode = msgspec.msgpack.Decoder(dict[Topic, Vector]).decode


class Position:
    """A cut: per topic and publisher, everything up to a number. Opaque; `str` gives it to keep, `parse` takes it back.

    Publishers whose sessions have ended stand in it as intervals, so that it does not grow with them.

    Positions are partly ordered: `a < b` if b has everything that a has and more; `a.concurrent(b)` if each has
    something that the other has not. Of a session that had ended for b and not for a, `a` may have everything too:
    then a comes before b, although nothing lies between them.
    """

    __slots__ = ("_cuts",)

    def __init__(self, cuts: Mapping[Topic, Vector]) -> None:
        self._cuts = {topic: dict(sorted(folded(cut).items())) for topic, cut in sorted(cuts.items())}

    def of(self, topic: str) -> Vector:
        """The cut of one topic."""
        return dict(self._cuts.get(Topic(topic), {}))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._cuts)

    def __str__(self) -> str:
        packed = zlib.compress(msgspec.msgpack.encode(self._cuts), 9)
        return _PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")

    def __repr__(self) -> str:
        told = {topic: sum(n for o, n in cut.items() if not is_interval(o)) for topic, cut in self._cuts.items()}
        ended = any(is_interval(origin) for cut in self._cuts.values() for origin in cut)
        return f"<Position behind {told}{', and what ended sessions published' if ended else ''}>"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that `str` wrote as this text; a UsageError if it is none."""
        cuts = _unpacked(text)
        if cuts is None or any(map(_is_senseless, cuts.values())):
            raise UsageError(f"position: {text[:40]!r} is none")
        return cls(cuts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self <= other and other <= self

    def __hash__(self) -> int:
        return hash(tuple((t, o, n) for t, cut in self._cuts.items() for o, n in cut.items() if n))

    def __le__(self, other: Position) -> bool:
        return all(within(cut, other._cuts.get(topic, {})) for topic, cut in self._cuts.items())

    def __lt__(self, other: Position) -> bool:
        return self <= other and not other <= self

    def __ge__(self, other: Position) -> bool:
        return other <= self

    def __gt__(self, other: Position) -> bool:
        return other < self

    def concurrent(self, other: Position) -> bool:
        """Neither has everything that the other has."""
        return not self <= other and not other <= self


def _is_senseless(cut: Vector) -> bool:
    return any(not 0 <= number < _MOST for number in cut.values()) or bool(senseless_interval(cut))


def _unpacked(text: str) -> dict[Topic, Vector] | None:
    """The position that the text encodes; None if it encodes none, or too large a one."""
    unpacking = zlib.decompressobj()
    try:
        packed = base64.b64decode(text.removeprefix(_PREFIX) + "===", altchars=b"-_", validate=False)
        body = unpacking.decompress(packed, _LONGEST)
        whole = text.startswith(_PREFIX) and unpacking.eof and not unpacking.unconsumed_tail
        return _decode(body) if whole else None
    except (ValueError, zlib.error, *NOT_DECODABLE):
        return None


def start_of(said: str | Position | dt.datetime, topic: Topic) -> Start | None:
    """The place where a reader of the topic begins; None: now."""
    if isinstance(said, Position):
        return at(said.of(topic))
    if isinstance(said, dt.datetime):
        return Start("time", {}, max(0, int(said.timestamp() * 1000)))
    if said == _NOW:
        return None
    if said in ("earliest", LATEST):
        return EARLIEST
    known = f"'now', 'earliest', {LATEST!r}, a Position or a datetime"
    raise UsageError(f"start: {str(said)[:40]!r} is none of {known}")
