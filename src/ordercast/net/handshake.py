"""Who is there: both ends prove that they know the cluster's token before either believes anything the other says.

    dialer                              acceptor
      │ ◀──────────────── Challenge ──────── │   version, nonce
      │ ──── Hello ────────────────────────▶ │   cluster, node, life, what it has received; mac over both nonces
      │ ◀──────────────────── Welcome ────── │   the same the other way round; or Refusal, with the reason

The token itself never travels. A mac covers both nonces and every field, so no greeting can be replayed or altered.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId

VERSION = 2
_MAGIC = "ordercast"
_NONCE_BYTES = 16
_LONGEST_REASON = 400


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=1):
    magic: str
    version: int
    nonce: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=2):
    cluster: str
    node: NodeId
    to: NodeId
    """Whom the dialer means to reach."""
    life: int
    since: int
    """The first life that this one remembers."""
    peer_life: int
    """The life of the acceptor that `received` counts packets of; -1 if the dialer never met one."""
    received: int
    nonce: bytes
    mac: bytes = b""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=3):
    node: NodeId
    life: int
    since: int
    received: int
    mac: bytes = b""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=4):
    reason: str


Greeting = Challenge | Hello | Welcome | Refusal

_Signed = TypeVar("_Signed", Hello, Welcome)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Greeting)


class Identity(msgspec.Struct, frozen=True):
    """What a process says it is, and the secret that proves it."""

    cluster: str
    node: NodeId
    life: int
    """How often this node's process was started before."""
    token: bytes
    since: int | None = None
    """The first life that this one remembers; None: no former one."""

    @property
    def memory(self) -> int:
        return self.life if self.since is None else self.since


class NetPlace(msgspec.Struct, frozen=True):
    """Where a node stands among processes, beside its place on the overlay."""

    cluster: str
    token: bytes
    life: int = 0
    """How often this node's process was started before."""
    epoch_ns: int = 0
    """The reading of the monotonic clock that the journal counts from."""
    since: int | None = None
    """The first life that this one remembers; None: no former one."""

    def identity(self, node: NodeId) -> Identity:
        return Identity(self.cluster, node, self.life, self.token, self.since)


def encode(greeting: Greeting) -> bytes:
    return _encoder.encode(greeting)


def decode(body: bytes, peer: str) -> Greeting:
    try:
        greeting: Greeting = _decoder.decode(body)
    except msgspec.MsgspecError:
        raise PeerError(peer, "does not speak Ordercast") from None
    if isinstance(greeting, Refusal):
        raise PeerError(peer, f"refuses: {greeting.reason}")
    return greeting


def challenge() -> Challenge:
    return Challenge(_MAGIC, VERSION, secrets.token_bytes(_NONCE_BYTES))


def refusal(reason: str) -> Refusal:
    return Refusal(reason[:_LONGEST_REASON])


def check_challenge(greeting: Greeting, peer: str) -> Challenge:
    if not isinstance(greeting, Challenge) or greeting.magic != _MAGIC or len(greeting.nonce) != _NONCE_BYTES:
        raise PeerError(peer, "does not speak Ordercast")
    if greeting.version != VERSION:
        raise PeerError(peer, f"speaks version {greeting.version}; this node speaks {VERSION}")
    return greeting


def hello(me: Identity, to: NodeId, peer_life: int, received: int, asked: Challenge) -> Hello:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return signed(Hello(me.cluster, me.node, to, me.life, me.memory, peer_life, received, nonce), me.token, asked.nonce)


def check_hello(greeting: Greeting, me: Identity, asked: Challenge, peer: str) -> Hello:
    """The Hello, if whoever sent it knows the token and means this node."""
    if not isinstance(greeting, Hello):
        raise PeerError(peer, "does not say hello")
    _check_mac(greeting, me.token, asked.nonce, peer)
    if greeting.cluster != me.cluster:
        raise PeerError(peer, f"belongs to cluster {greeting.cluster!r}, this node to {me.cluster!r}")
    if greeting.to != me.node:
        raise PeerError(peer, f"looks for {greeting.to}, and this is {me.node}")
    return greeting


def welcome(me: Identity, received: int, greeted: Hello) -> Welcome:
    return signed(Welcome(me.node, me.life, me.memory, received), me.token, greeted.nonce)


def check_welcome(greeting: Greeting, me: Identity, said: Hello, peer: str) -> Welcome:
    if not isinstance(greeting, Welcome):
        raise PeerError(peer, "does not answer the hello")
    _check_mac(greeting, me.token, said.nonce, peer)
    if greeting.node != said.to:
        raise PeerError(peer, f"is {greeting.node} and not {said.to}")
    return greeting


def signed(greeting: _Signed, token: bytes, nonce: bytes) -> _Signed:
    """The greeting with its mac: over the other end's nonce and all its own fields, the kind among them."""
    return msgspec.structs.replace(greeting, mac=_mac(greeting, token, nonce))


def _mac(greeting: Hello | Welcome, token: bytes, nonce: bytes) -> bytes:
    bare = msgspec.structs.replace(greeting, mac=b"")
    return hmac.new(token, nonce + _encoder.encode(bare), hashlib.sha256).digest()


def _check_mac(greeting: Hello | Welcome, token: bytes, nonce: bytes, peer: str) -> None:
    if not hmac.compare_digest(greeting.mac, _mac(greeting, token, nonce)):
        raise PeerError(peer, "does not know the token of this cluster")
