"""Columns of a kept topic in a query: one row for each message, with the names that users of Kafka know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ordercast.core.ids import plain_origin, publisher_of
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication, any_extras

_SCHEMA = {
    "key": "string", "value": "binary", "topic": "string", "timestamp": "timestamp", "publisher": "string",
    "session": "string", "number": "bigint", "part": "int", "guarantee": "string", "keys": "array<string>",
    "dedup": "string",
}  # fmt: skip
_HEADERS = {"headers": "array<struct<key: string, value: binary>>"}
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_ARROW: dict[str, Any] = {
    "string": pa.string(), "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC"), "bigint": pa.int64(),
    "int": pa.int32(), "array<string>": pa.list_(pa.string()), _HEADERS["headers"]: pa.list_(_HEADER),
}  # fmt: skip
_GUARANTEES = {level: level.label for level in Guarantee}


def schema(*, headers: bool) -> str:
    """The columns, as Spark writes them down."""
    return ", ".join(f"{name} {kind}" for name, kind in _columns(headers=headers).items())


def _columns(*, headers: bool) -> dict[str, str]:
    return _SCHEMA | _HEADERS if headers else _SCHEMA


def rows(messages: Sequence[Publication], *, headers: bool) -> pa.RecordBatch:
    """The messages of one topic as a batch, in their order."""
    origins = [message.origin for message in messages]
    names = {origin: plain_origin(origin) for origin in set(origins)}
    publishers = {origin: publisher_of(origin) for origin in names}
    keys = [message.keys for message in messages]
    plain = not any_extras(messages)
    count = len(messages)
    columns: dict[str, Any] = {
        "key": [named[0] or None if named else None for named in keys],
        "value": [message.payload for message in messages],
        "topic": pa.repeat(str(messages[0].topic), count),
        "timestamp": [message.published_ns // 1000 for message in messages],
        "publisher": [publishers[origin] for origin in origins],
        "session": [names[origin] for origin in origins],
        "number": [message.number for message in messages],
        "part": pa.nulls(count, pa.int32()) if plain else [getattr(message, "part", None) for message in messages],
        "guarantee": [_GUARANTEES[message.guarantee] for message in messages],
        "keys": [[key for key in named if key] for named in keys],
        "dedup": pa.nulls(count, pa.string()) if plain else [message.dedup or None for message in messages],
    }
    if headers:
        columns["headers"] = [_headers(message) for message in messages]
    kinds = {name: _ARROW[kind] for name, kind in _columns(headers=headers).items()}
    arrays = [pa.array(columns[name], kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(kinds.items())))


def _headers(message: Publication) -> list[dict[str, str | bytes]] | None:
    found = message.headers
    return [{"key": name.decode(errors="backslashreplace"), "value": value} for name, value in found.items()] or None
