"""Who is there, between brokers and clients: both ends prove that they know the token of the role that one of them has.

    dialer                              acceptor
      │ ◀──────────────── Challenge ──────── │   version, nonce
      │ ──── Present ──────────────────────▶ │   cluster, role, name, life, user; mac over both nonces
      │ ◀──────────────────── Accepted ───── │   who the acceptor is; mac. Or Refusal, with the reason

The token itself never travels. A mac covers the other end's nonce and every field, the role among them, so no greeting
can be replayed, altered or turned round.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, valid_node
from ordercast.core.process import Peer, Rights
from ordercast.net.credentials import ASKING, BROKER, CLIENT, Credentials
from ordercast.net.handshake import Challenge, Refusal

VERSION = 1
_MAGIC = "ordercast-broker"
_NONCE_BYTES = 16
_LONGEST_NAME = 128


class Present(msgspec.Struct, frozen=True, array_like=True, tag=2):
    cluster: str
    kind: str
    name: str
    life: int
    address: str
    user: str
    nonce: bytes
    mac: bytes = b""


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=3):
    cluster: str
    name: str
    life: int
    address: str
    term: int
    """The highest term that the acceptor knows; 0 if it was never part of a tree."""
    mac: bytes = b""


Greeting = Challenge | Present | Accepted | Refusal
_Signed = TypeVar("_Signed", Present, Accepted)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Greeting)


class RefusedError(PeerError):
    """The other end lives and says no."""


def encode(greeting: Greeting) -> bytes:
    return _encoder.encode(greeting)


def decode(body: bytes, peer: str) -> Greeting:
    try:
        greeting: Greeting = _decoder.decode(body)
    except msgspec.MsgspecError:
        raise PeerError(peer, "does not speak Ordercast") from None
    if isinstance(greeting, Refusal):
        raise RefusedError(peer, f"refuses: {greeting.reason}")
    return greeting


def challenge() -> Challenge:
    return Challenge(_MAGIC, VERSION, secrets.token_bytes(_NONCE_BYTES))


def present(me: Peer, known: Credentials, greeting: Greeting, peer: str) -> Present:
    """The dialer's answer to a challenge."""
    if not isinstance(greeting, Challenge) or greeting.magic != _MAGIC or len(greeting.nonce) != _NONCE_BYTES:
        raise PeerError(peer, "does not speak Ordercast")
    if greeting.version != VERSION:
        raise PeerError(peer, f"speaks version {greeting.version}; this process speaks {VERSION}")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    bare = Present(known.cluster, me.kind, me.name, me.life, me.address, known.user, nonce)
    return _signed(bare, known.own_token(me.kind), greeting.nonce)


def accept(
    me: Peer, known: Credentials, greeting: Greeting, asked: Challenge, peer: str, term: int = 0
) -> tuple[Peer, Accepted]:
    """Who presents itself, and the acceptor's answer; a PeerError unless it proves what it says."""
    if not isinstance(greeting, Present) or greeting.kind not in (BROKER, CLIENT, ASKING):
        raise PeerError(peer, "does not present itself")
    token = known.token_of(greeting.kind, greeting.user, peer)
    _check_mac(greeting, token, asked.nonce, peer)
    if greeting.cluster != known.cluster and (greeting.cluster or greeting.kind != CLIENT):
        raise PeerError(peer, f"looks for cluster {greeting.cluster!r}, and this is {known.cluster!r}")
    if not valid_node(greeting.name) or len(greeting.name) > _LONGEST_NAME:
        raise PeerError(peer, f"has no proper name: {greeting.name[:_LONGEST_NAME]!r}")
    if greeting.kind == BROKER and greeting.name == me.name:
        raise PeerError(peer, f"calls itself {me.name}, which is the name of this broker")
    rights = known.rights_of(greeting.user, greeting.name) if greeting.kind == CLIENT else Rights()
    answer = Accepted(known.cluster, me.name, me.life, me.address, term)
    who = Peer(greeting.kind, greeting.name, greeting.life, greeting.address, rights)
    return who, _signed(answer, token, greeting.nonce)


def accepted(me: Peer, known: Credentials, greeting: Greeting, said: Present, peer: str) -> Peer:
    """Whom the dialer has reached."""
    if not isinstance(greeting, Accepted):
        raise PeerError(peer, "does not answer")
    _check_mac(greeting, known.own_token(me.kind), said.nonce, peer)
    if not valid_node(greeting.name):
        raise PeerError(peer, f"has no proper name: {greeting.name[:_LONGEST_NAME]!r}")
    return Peer(BROKER, NodeId(greeting.name), greeting.life, greeting.address)


def _signed(greeting: _Signed, token: bytes, nonce: bytes) -> _Signed:
    return msgspec.structs.replace(greeting, mac=_mac(greeting, token, nonce))


def _mac(greeting: Present | Accepted, token: bytes, nonce: bytes) -> bytes:
    bare = msgspec.structs.replace(greeting, mac=b"")
    return hmac.new(token, nonce + _encoder.encode(bare), hashlib.sha256).digest()


def _check_mac(greeting: Present | Accepted, token: bytes, nonce: bytes, peer: str) -> None:
    if not hmac.compare_digest(greeting.mac, _mac(greeting, token, nonce)):
        raise PeerError(peer, "does not know the token")
