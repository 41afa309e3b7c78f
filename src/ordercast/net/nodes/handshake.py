"""Who is there: both ends prove that they know the cluster's token before either believes anything the other says.

    dialer                              acceptor
      │ ◀──────────────── Challenge ──────── │   version, nonce
      │ ──── Hello ────────────────────────▶ │   cluster, node, life, what it has received; mac over both nonces
      │ ◀──────────────────── Welcome ────── │   the same the other way round; or Refusal, with the reason

The token itself never travels; `greetings` says what a mac covers.
"""

from __future__ import annotations

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.net.wire import greetings
from ordercast.net.wire.greetings import Challenge, Refusal, Signed, check_mac, new_nonce, signed

VERSION = 2
_MAGIC = "ordercast"


class Hello(Signed, frozen=True, array_like=True, tag=2):
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


class Welcome(Signed, frozen=True, array_like=True, tag=3):
    node: NodeId
    life: int
    since: int
    received: int


Greeting = Challenge | Hello | Welcome | Refusal

_decoder: msgspec.msgpack.Decoder[Greeting] = msgspec.msgpack.Decoder(Greeting)


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


def decode(body: bytes, peer: str) -> Greeting:
    return greetings.decode(_decoder, body, peer)


def challenge() -> Challenge:
    return greetings.challenge(_MAGIC, VERSION)


def check_challenge(greeting: Greeting, peer: str) -> Challenge:
    return greetings.check_challenge(greeting, _MAGIC, VERSION, peer)


def hello(me: Identity, to: NodeId, peer_life: int, received: int, asked: Challenge) -> Hello:
    said = Hello(me.cluster, me.node, to, me.life, me.memory, peer_life, received, new_nonce())
    return signed(said, me.token, asked.nonce)


def check_hello(greeting: Greeting, me: Identity, asked: Challenge, peer: str) -> Hello:
    """The Hello, if whoever sent it knows the token and means this node."""
    if not isinstance(greeting, Hello):
        raise PeerError(peer, "does not say hello")
    check_mac(greeting, me.token, asked.nonce, peer)
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
    check_mac(greeting, me.token, said.nonce, peer)
    if greeting.node != said.to:
        raise PeerError(peer, f"is {greeting.node} and not {said.to}")
    return greeting
