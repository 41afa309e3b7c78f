"""An archive's disk in memory: the reference for the one on disk, and the disk of the simulator's brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ordercast.broker.archive.ports import ArchiveManifest, Piece
from ordercast.core.ids import Topic
from ordercast.pubsub.keeping import StampedRule

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ArchiveManifest).decode


class MemoryFiles:
    """Implements `SegmentFiles`. Offsets count records."""

    def __init__(self, now_ms: Callable[[], int], segment_size: int = 4) -> None:
        self.now_ms = now_ms
        self.segment_size = segment_size
        self.worth_compacting = segment_size
        self.segments: dict[tuple[Topic, int], list[bytes | None]] = {}
        """None in the place of a record: what the disk has there is not what was written."""
        self._manifests: dict[Topic, bytes] = {}
        self._rules: tuple[StampedRule, ...] = ()

    def saved(self) -> dict[Topic, ArchiveManifest]:
        return {topic: _decode(body) for topic, body in self._manifests.items()}

    def rules(self) -> tuple[StampedRule, ...]:
        return self._rules

    def keep_rules(self, rules: tuple[StampedRule, ...]) -> None:
        self._rules = rules

    def note(self, topic: Topic, manifest: ArchiveManifest | None) -> None:
        if manifest is None:
            self._manifests.pop(topic, None)
        else:
            self._manifests[topic] = _encode(manifest)

    def add(self, topic: Topic, number: int, bodies: Sequence[bytes]) -> int:
        """Sizes are counted in records too: `sealed` segments are compared with them."""
        self.segments.setdefault((topic, number), []).extend(bodies)
        return len(bodies)

    def reopen(self, topic: Topic, number: int) -> bool:
        """Open a segment again; a damaged record is cut off with all that follows it."""
        records = self.segments.setdefault((topic, number), [])
        damaged = None in records
        if damaged:
            del records[records.index(None) :]
        return damaged

    def secure(self) -> None:
        """Everything is, at once."""

    def read(self, topic: Topic, number: int, offset: int, most: int) -> Piece:
        records = self.segments.get((topic, number), [])
        bodies: list[bytes] = []
        size = 0
        for body in records[offset:]:
            if body is None or size >= most:
                break
            bodies.append(body)
            size += len(body)
        end = offset + len(bodies)
        return Piece(bodies, end, not bodies and offset < len(records))

    def drop(self, topic: Topic, number: int, *, damaged: bool = False) -> None:  # noqa: ARG002
        self.segments.pop((topic, number), None)
