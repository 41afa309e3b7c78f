"""The handshake: both ends prove that they know the token of the role that is claimed, before either is believed.

    dialer                              acceptor
      │ ◀──────────────── Challenge ──────── │   version, nonce
      │ ──── Present ──────────────────────▶ │   cluster, role, name, life, user, whom it means; mac over both nonces
      │ ◀──────────────────── Accepted ───── │   who the acceptor is; mac. Or Refusal, with the reason

The token itself never travels. A mac covers the other end's nonce and every field of its greeting, the role among them,
so no greeting can be replayed, altered or turned round.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import valid_node
from ordercast.core.process import Peer, Rights
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.wire.credentials import ASKING, BROKER, CASTING, CLIENT, NODE, Credentials

VERSION = 5
_MAGIC = "ordercast"
_NONCE_BYTES = 16
_LONGEST_NAME = 128
_LONGEST_REASON = 400
_WELCOME = {NODE: (NODE, CASTING), BROKER: (BROKER, CLIENT, ASKING)}
"""Who may connect to whom; nobody connects to others than these."""


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=1):
    magic: str
    version: int
    nonce: bytes


class Signed(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Base of the greetings that prove something. The mac is the last of their fields."""

    mac: bytes = b""


class Present(Signed, frozen=True, array_like=True, tag=2):
    cluster: str
    kind: str
    name: str
    life: int
    address: str
    user: str
    to: str
    """Whom the dialer means to reach; empty: whoever is there."""
    nonce: bytes


class Accepted(Signed, frozen=True, array_like=True, tag=3):
    cluster: str
    kind: str
    name: str
    life: int
    address: str
    term: int
    """The highest term that the acceptor knows; 0 if it was never part of a tree."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=4):
    reason: str


class RefusedError(PeerError):
    """The other end answered, and refused the connection."""


Greeting = Challenge | Present | Accepted | Refusal
_Signed = TypeVar("_Signed", bound=Signed)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Greeting] = msgspec.msgpack.Decoder(Greeting)


def encode(greeting: Greeting) -> bytes:
    return _encoder.encode(greeting)


def decode(body: bytes, peer: str) -> Greeting:
    """The greeting; a refusal is an error."""
    try:
        greeting = _decoder.decode(body)
    except NOT_DECODABLE:
        raise PeerError(peer, "does not speak Ordercast") from None
    if isinstance(greeting, Refusal):
        raise RefusedError(peer, f"refuses: {greeting.reason}")
    return greeting


def challenge() -> Challenge:
    return Challenge(_MAGIC, VERSION, _nonce())


def refusal(reason: str) -> Refusal:
    return Refusal(reason[:_LONGEST_REASON])


def present(me: Peer, known: Credentials, greeting: Greeting, peer: str, to: str = "", role: str = "") -> Present:
    """The dialer's answer to a challenge, as what it is or in another role."""
    if not isinstance(greeting, Challenge) or greeting.magic != _MAGIC or len(greeting.nonce) != _NONCE_BYTES:
        raise PeerError(peer, "does not speak Ordercast")
    if greeting.version != VERSION:
        raise PeerError(peer, f"speaks version {greeting.version}; this end speaks {VERSION}")
    bare = Present(known.cluster, role or me.kind, me.name, me.life, me.address, known.user, to, _nonce())
    return _signed(bare, known.own_token(me.kind), greeting.nonce)


def accept(
    me: Peer, known: Credentials, greeting: Greeting, asked: Challenge, peer: str, term: int = 0
) -> tuple[Peer, Accepted]:
    """The peer that presents itself, and the acceptor's answer; a PeerError unless it proves what it says."""
    if not isinstance(greeting, Present) or greeting.kind not in _WELCOME.get(me.kind, ()):
        raise PeerError(peer, f"does not present itself as somebody who may talk to a {me.kind}")
    token = known.token_of(greeting.kind, greeting.user, peer)
    _check_mac(greeting, token, asked.nonce, peer)
    if greeting.cluster != known.cluster and (greeting.cluster or greeting.kind != CLIENT):
        raise PeerError(peer, f"looks for cluster {greeting.cluster!r}, and this is {known.cluster!r}")
    _check_name(greeting.name, peer)
    if greeting.to not in ("", me.name):
        raise PeerError(peer, f"looks for {greeting.to}, and this is {me.name}")
    if greeting.kind in (me.kind, CASTING) and greeting.name == me.name:
        raise PeerError(peer, f"calls itself {me.name}, which is the name of this {me.kind}")
    rights = known.rights_of(greeting.user, greeting.name) if greeting.kind == CLIENT else Rights()
    answer = Accepted(known.cluster, me.kind, me.name, me.life, me.address, term)
    user = greeting.user if known.users and greeting.kind == CLIENT else ""  # Without users it is a mere word.
    who = Peer(greeting.kind, greeting.name, greeting.life, greeting.address, rights, user)
    return who, _signed(answer, token, greeting.nonce)


def accepted(me: Peer, known: Credentials, greeting: Greeting, said: Present, peer: str) -> Peer:
    """The dialer's check of the answer: who is at the other end."""
    if not isinstance(greeting, Accepted):
        raise PeerError(peer, "does not answer")
    _check_mac(greeting, known.own_token(me.kind), said.nonce, peer)
    _check_name(greeting.name, peer)
    if said.to not in ("", greeting.name):
        raise PeerError(peer, f"is {greeting.name} and not {said.to}")
    return Peer(greeting.kind, greeting.name, greeting.life, greeting.address)


def _check_name(name: str, peer: str) -> None:
    if not valid_node(name) or len(name) > _LONGEST_NAME:
        raise PeerError(peer, f"has no proper name: {name[:_LONGEST_NAME]!r}")


def _nonce() -> bytes:
    return secrets.token_bytes(_NONCE_BYTES)


def _signed(greeting: _Signed, token: bytes, nonce: bytes) -> _Signed:
    """The greeting with its mac; the nonce is the other end's."""
    return msgspec.structs.replace(greeting, mac=_mac(greeting, token, nonce))


def _check_mac(greeting: Signed, token: bytes, nonce: bytes, peer: str) -> None:
    if not hmac.compare_digest(greeting.mac, _mac(greeting, token, nonce)):
        raise PeerError(peer, "does not know the token")


def _mac(greeting: Signed, token: bytes, nonce: bytes) -> bytes:
    bare = msgspec.structs.replace(greeting, mac=b"")
    return hmac.new(token, nonce + _encoder.encode(bare), hashlib.sha256).digest()
