"""The encoding of operations in the payload of a publication."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.wire import NOT_DECODABLE


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call of one operation."""

    service: str
    operation: str
    arguments: tuple[Any, ...]


class Unit(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Calls that happen together or not at all; almost always one. `token` is for the one who asked."""

    token: bytes
    calls: tuple[Call, ...]


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The body travels apart: by its SHA-256 it is found and checked."""

    digest: bytes
    size: int


class UnitOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a unit at one replica: a value per call, or the reason why nothing of it happened."""

    values: tuple[Any, ...] = ()
    refused: str | None = None


_decoder = msgspec.msgpack.Decoder(Unit | Elsewhere)
encode_body = msgspec.msgpack.Encoder().encode


def decode_body(payload: bytes) -> Unit | Elsewhere | None:
    """The unit or where it is; None: these bytes are neither, which every replica finds alike."""
    try:
        body: Unit | Elsewhere = _decoder.decode(payload)
    except NOT_DECODABLE:
        return None
    return body
