"""Columns of numbers as bytes, so that a table moves thousands of events in one row and no event on its own."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

Packed = dict[str, Any]
_HEAD = struct.Struct("<Q")
_SHORT = struct.Struct("<QQQ")
_PLAIN, _RUNS, _STEPS = range(3)
_STEP_TYPES: dict[int, tuple[Any, Any]] = {4: (np.uint32, np.uint8), 8: (np.uint64, np.uint32)}
"""By the size of a number: what it is taken for, and what most differences fit into."""


class _Part(msgspec.Struct, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


def packed(about: Any, arrays: Packed) -> bytes:
    """A value that msgspec can encode and arrays by name, in one piece."""
    parts = [_Part(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    head = msgspec.msgpack.encode((about, parts))
    body = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return b"".join([_HEAD.pack(len(head)), head, *body])


def unpacked(data: bytes, type_: Any = Any) -> tuple[Any, Packed]:
    """The value that was `packed`. Arrays are copies that may be written to: kernels are compiled for such."""
    (length,) = _HEAD.unpack_from(data)
    at = _HEAD.size + length
    about, parts = msgspec.msgpack.decode(data[_HEAD.size : at], type=tuple[type_, list[_Part]])
    arrays = {}
    for part in parts:
        dtype = np.dtype(part.dtype)
        count = int(np.prod(part.shape, dtype=np.int64))
        arrays[part.name] = np.frombuffer(data, dtype, count, at).reshape(part.shape).copy()
        at += count * dtype.itemsize
    return about, arrays


def squeezed(data: bytes) -> bytes:
    """Bytes compressed, for what is moved more than once."""
    return _HEAD.pack(len(data)) + pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)


def as_it_was(data: bytes) -> bytes:
    """What `squeezed` compressed."""
    (length,) = _HEAD.unpack_from(data)
    return pa.Codec("zstd").decompress(memoryview(data)[_HEAD.size :], length, asbytes=True)


def schema_of(**types: Any) -> pa.Schema:
    """Columns and their types; packed numbers are bytes."""
    return pa.schema([pa.field(name, type_) for name, type_ in types.items()])


def values(table: pa.Table, name: str) -> list[Any]:
    """The values of a column."""
    return table.column(name).to_pylist()


def column(table: pa.Table, name: str, dtype: Any) -> list[np.ndarray[Any, Any]]:
    """A column of numbers as they are in memory: one array for each row of the table, without a copy."""
    return [np.frombuffer(memoryview(value.as_buffer()), dtype) for value in table.column(name)]


def runs(numbers: np.ndarray[Any, Any]) -> bytes:
    """Numbers of which long stretches are the same, as these; as they are in memory if that is shorter."""
    changes = np.flatnonzero(numbers[1:] != numbers[:-1])
    if not numbers.size or (changes.size + 1) * (8 + numbers.itemsize) >= numbers.nbytes:
        return _SHORT.pack(_PLAIN, numbers.size, 0) + numbers.tobytes()
    starts = np.concatenate(([0], changes + 1))
    return _SHORT.pack(_RUNS, numbers.size, starts.size) + starts.tobytes() + numbers[starts].tobytes()


def steps(numbers: np.ndarray[Any, Any]) -> bytes:
    """Numbers that mostly rise by little, in fewer bytes each; as they are in memory if that is shorter.

    Differences are taken modulo 2^32 or 2^64, so that none is too large.
    """
    wide, narrow = _STEP_TYPES[numbers.itemsize]
    rises: np.ndarray[Any, Any] = np.diff(numbers.view(wide), prepend=wide(0))
    large = np.flatnonzero(rises > np.iinfo(narrow).max)
    if large.size * 4 >= numbers.size:
        return _SHORT.pack(_PLAIN, numbers.size, 0) + numbers.tobytes()
    body = large.tobytes() + rises[large].tobytes() + rises.astype(narrow).tobytes()
    return _SHORT.pack(_STEPS, numbers.size, large.size) + body


def shortened(table: pa.Table, name: str, dtype: Any) -> list[np.ndarray[Any, Any]]:
    """A column of what `runs` or `steps` wrote: one array for each row of the table."""
    return [_numbers(memoryview(value.as_buffer()), np.dtype(dtype)) for value in table.column(name)]


def _numbers(data: memoryview, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    form, count, pieces = _SHORT.unpack_from(data)
    at = _SHORT.size
    if form == _PLAIN:
        return np.frombuffer(data, dtype, count, at)
    starts = np.frombuffer(data, np.int64, pieces, at)
    at += starts.nbytes
    if form == _RUNS:
        return np.repeat(np.frombuffer(data, dtype, pieces, at), np.diff(starts, append=count))
    wide, narrow = _STEP_TYPES[dtype.itemsize]
    large = np.frombuffer(data, wide, pieces, at)
    rises = np.frombuffer(data, narrow, count, at + large.nbytes).astype(wide)
    rises[starts] = large
    return np.cumsum(rises, dtype=wide).view(dtype)


def table_bytes(table: pa.Table) -> bytes:
    """An Arrow table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def table_from(data: Any) -> pa.Table:
    """The table that `table_bytes` wrote."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all()
