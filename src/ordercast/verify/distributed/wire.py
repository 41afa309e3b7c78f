"""Columns of numbers as bytes, so that a table moves thousands of events in one row and no event on its own."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

Packed = dict[str, Any]
_HEAD = struct.Struct("<Q")


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
    """A column of packed numbers: one array for each row of the table, without a copy."""
    return [np.frombuffer(memoryview(value.as_buffer()), dtype) for value in table.column(name)]


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
