"""What every handshake has in common: a challenge, greetings that carry a mac, and a refusal that says why.

The token itself never travels. A mac covers the other end's nonce and every field of its greeting, the kind among them,
so no greeting can be replayed, altered or turned round.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.wire import NOT_DECODABLE

_NONCE_BYTES = 16
_LONGEST_REASON = 400


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=1):
    magic: str
    version: int
    nonce: bytes


class Signed(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Base of the greetings that prove something. The mac is the last of their fields."""

    mac: bytes = b""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=4):
    reason: str


class RefusedError(PeerError):
    """The other end lives and says no."""


_Greeting = TypeVar("_Greeting")
_Signed = TypeVar("_Signed", bound=Signed)

_encoder = msgspec.msgpack.Encoder()


def encode(greeting: Challenge | Signed | Refusal) -> bytes:
    return _encoder.encode(greeting)


def decode(decoder: msgspec.msgpack.Decoder[_Greeting], body: bytes, peer: str) -> _Greeting:
    """The greeting; a refusal is an error."""
    try:
        greeting = decoder.decode(body)
    except NOT_DECODABLE:
        raise PeerError(peer, "does not speak Ordercast") from None
    if isinstance(greeting, Refusal):
        raise RefusedError(peer, f"refuses: {greeting.reason}")
    return greeting


def refusal(reason: str) -> Refusal:
    return Refusal(reason[:_LONGEST_REASON])


def new_nonce() -> bytes:
    return secrets.token_bytes(_NONCE_BYTES)


def challenge(magic: str, version: int) -> Challenge:
    return Challenge(magic, version, new_nonce())


def check_challenge(greeting: object, magic: str, version: int, peer: str) -> Challenge:
    if not isinstance(greeting, Challenge) or greeting.magic != magic or len(greeting.nonce) != _NONCE_BYTES:
        raise PeerError(peer, "does not speak Ordercast")
    if greeting.version != version:
        raise PeerError(peer, f"speaks version {greeting.version}; this end speaks {version}")
    return greeting


def signed(greeting: _Signed, token: bytes, nonce: bytes) -> _Signed:
    """The greeting with its mac; the nonce is the other end's."""
    return msgspec.structs.replace(greeting, mac=_mac(greeting, token, nonce))


def check_mac(greeting: Signed, token: bytes, nonce: bytes, peer: str) -> None:
    if not hmac.compare_digest(greeting.mac, _mac(greeting, token, nonce)):
        raise PeerError(peer, "does not know the token")


def _mac(greeting: Signed, token: bytes, nonce: bytes) -> bytes:
    bare = msgspec.structs.replace(greeting, mac=b"")
    return hmac.new(token, nonce + _encoder.encode(bare), hashlib.sha256).digest()
