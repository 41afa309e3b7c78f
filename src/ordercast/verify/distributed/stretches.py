"""The messages' side of a run in pieces, as the one task that works it out sends it to those that judge receivers.

Messages come in stretches of their numbers: facts about each, and happened-before between them. Who judges receivers
reads one piece at a time, and keeps what is about messages that concern them. Which message has which number is told
by the buckets of the second stage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.distributed.wire import as_it_was, packed, schema_of, squeezed, unpacked, values
from ordercast.verify.past import HappenedBefore, MessageStretch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.kernels.jit import Ints, Offsets

ORDERED = schema_of(what=pa.int32(), number=pa.int32(), data=pa.binary())
_FACT_BYTES, _ROW_BYTES, _STEP_BYTES = 64, 12, 4
_FITS_SHORT = 1 << 16
"""So many rows of a store have numbers of two bytes."""


class OrderPiece(IntEnum):
    """Kinds of pieces, and what their number says."""

    ABOUT = 0
    """Of the run: one."""
    NUMBERS = 1
    """Of the messages of a bucket, by their codes: number and topic. By bucket."""
    FACTS = 2
    CAUSAL = 3
    """Happened-before as the scopes of the run define it."""
    WHOLE_PAST = 4
    """Happened-before through all topics, where that is another one. These three by stretch."""


class AboutPast(msgspec.Struct):
    """One of both, without its stretches."""

    rows: int
    per_message: int


def piece_row(what: OrderPiece, number: int, about: Any, arrays: dict[str, Any]) -> pa.RecordBatch:
    """A piece as a row. It is compressed once, because every part gets a copy."""
    data = squeezed(packed(about, arrays))
    return pa.RecordBatch.from_pydict({"what": [int(what)], "number": [number], "data": [data]}, schema=ORDERED)


class OrderPieces:
    """The pieces that `order` sent, read one at a time."""

    def __init__(self, table: pa.Table) -> None:
        self._data = table.column("data")
        self._row = {key: i for i, key in enumerate(zip(values(table, "what"), values(table, "number"), strict=True))}

    def read(self, what: OrderPiece, number: int, type_: Any = Any) -> tuple[Any, dict[str, Any]]:
        return unpacked(as_it_was(self._data[self._row[what, number]].as_buffer()), type_)

    def __contains__(self, key: tuple[OrderPiece, int]) -> bool:
        return key in self._row


def stretches_of(messages: int, most_bytes: int, key_off: Offsets, pasts: list[HappenedBefore]) -> list[int]:
    """Where the stretches begin, and the end: each has one message at least, and else no more than `most_bytes`."""
    whole = [past.stretches[0] for past in pasts]

    def bytes_before(m: int) -> int:
        size = _FACT_BYTES * m + 2 * _STEP_BYTES * int(key_off[m])
        for past, stretch in zip(pasts, whole, strict=True):
            rows = past.per_message * m
            size += _ROW_BYTES * rows + _STEP_BYTES * int(stretch.edge_off[rows])
        return size

    bounds = [0]
    while bounds[-1] < messages:
        fits = bisect_right(range(messages + 1), bytes_before(bounds[-1]) + most_bytes, key=bytes_before) - 1
        bounds.append(max(fits, bounds[-1] + 1))
    return bounds


def sent(past: HappenedBefore, what: OrderPiece, bounds: list[int]) -> Iterator[pa.RecordBatch]:
    """Happened-before that is in one stretch, as pieces of it."""
    (whole,) = past.stretches
    small = np.uint16 if past.rows <= _FITS_SHORT else np.int32
    for number, (first, last) in enumerate(pairwise(bounds)):
        rows = slice(first * past.per_message, last * past.per_message)
        off = whole.edge_off[rows.start : rows.stop + 1]
        yield piece_row(what, number, None, {
            "pub": whole.pub[first:last],
            "place": whole.place[first:last],
            "row": whole.row[rows],
            "before": whole.before[rows],
            "reads": np.diff(off).astype(np.int32),
            "edges": whole.edges[off[0] : off[-1]].astype(small),
        })  # fmt: skip


def past_from(
    pieces: OrderPieces, what: OrderPiece, about: AboutPast, bounds: list[int], messages: Ints
) -> HappenedBefore:
    """Happened-before that is read stretch by stretch."""
    return HappenedBefore(messages, about.rows, about.per_message, _Stretches(pieces, what, bounds))


class _Stretches(Sequence[MessageStretch]):
    """Stretches that are read when they are asked for, and not kept."""

    def __init__(self, pieces: OrderPieces, what: OrderPiece, bounds: list[int]) -> None:
        self._pieces = pieces
        self._what = what
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, number: int) -> MessageStretch: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[MessageStretch]: ...
    def __getitem__(self, number: int | slice) -> MessageStretch | Sequence[MessageStretch]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        arrays = self._pieces.read(self._what, number)[1]
        edge_off = offsets_of(arrays["reads"])
        edges = arrays["edges"].astype(np.int32, copy=False)
        places = arrays["pub"], arrays["place"]
        return MessageStretch(self._bounds[number], *places, arrays["row"], arrays["before"], edge_off, edges)


def offsets_of(sizes: Any) -> Offsets:
    """Where each part begins, of parts of these sizes, and the end."""
    offsets = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
