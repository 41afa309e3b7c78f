"""Who is there, between brokers and clients: both ends prove that they know the token of the role that one of them has.

    dialer                              acceptor
      │ ◀──────────────── Challenge ──────── │   version, nonce
      │ ──── Present ──────────────────────▶ │   cluster, role, name, life, user; mac over both nonces
      │ ◀──────────────────── Accepted ───── │   who the acceptor is; mac. Or Refusal, with the reason

The token itself never travels; `greetings` says what a mac covers, the role among it.
"""

from __future__ import annotations

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, valid_node
from ordercast.core.process import Peer, Rights
from ordercast.net.wire import greetings
from ordercast.net.wire.credentials import ASKING, BROKER, CLIENT, Credentials
from ordercast.net.wire.greetings import Challenge, Refusal, Signed, check_challenge, check_mac, new_nonce, signed

VERSION = 1
_MAGIC = "ordercast-broker"
_LONGEST_NAME = 128


class Present(Signed, frozen=True, array_like=True, tag=2):
    cluster: str
    kind: str
    name: str
    life: int
    address: str
    user: str
    nonce: bytes


class Accepted(Signed, frozen=True, array_like=True, tag=3):
    cluster: str
    name: str
    life: int
    address: str
    term: int
    """The highest term that the acceptor knows; 0 if it was never part of a tree."""


Greeting = Challenge | Present | Accepted | Refusal

_decoder: msgspec.msgpack.Decoder[Greeting] = msgspec.msgpack.Decoder(Greeting)


def decode(body: bytes, peer: str) -> Greeting:
    return greetings.decode(_decoder, body, peer)


def challenge() -> Challenge:
    return greetings.challenge(_MAGIC, VERSION)


def present(me: Peer, known: Credentials, greeting: Greeting, peer: str) -> Present:
    """The dialer's answer to a challenge."""
    asked = check_challenge(greeting, _MAGIC, VERSION, peer)
    bare = Present(known.cluster, me.kind, me.name, me.life, me.address, known.user, new_nonce())
    return signed(bare, known.own_token(me.kind), asked.nonce)


def accept(
    me: Peer, known: Credentials, greeting: Greeting, asked: Challenge, peer: str, term: int = 0
) -> tuple[Peer, Accepted]:
    """Who presents itself, and the acceptor's answer; a PeerError unless it proves what it says."""
    if not isinstance(greeting, Present) or greeting.kind not in (BROKER, CLIENT, ASKING):
        raise PeerError(peer, "does not present itself")
    token = known.token_of(greeting.kind, greeting.user, peer)
    check_mac(greeting, token, asked.nonce, peer)
    if greeting.cluster != known.cluster and (greeting.cluster or greeting.kind != CLIENT):
        raise PeerError(peer, f"looks for cluster {greeting.cluster!r}, and this is {known.cluster!r}")
    if not valid_node(greeting.name) or len(greeting.name) > _LONGEST_NAME:
        raise PeerError(peer, f"has no proper name: {greeting.name[:_LONGEST_NAME]!r}")
    if greeting.kind == BROKER and greeting.name == me.name:
        raise PeerError(peer, f"calls itself {me.name}, which is the name of this broker")
    rights = known.rights_of(greeting.user, greeting.name) if greeting.kind == CLIENT else Rights()
    answer = Accepted(known.cluster, me.name, me.life, me.address, term)
    who = Peer(greeting.kind, greeting.name, greeting.life, greeting.address, rights)
    return who, signed(answer, token, greeting.nonce)


def accepted(me: Peer, known: Credentials, greeting: Greeting, said: Present, peer: str) -> Peer:
    """Whom the dialer has reached."""
    if not isinstance(greeting, Accepted):
        raise PeerError(peer, "does not answer")
    check_mac(greeting, known.own_token(me.kind), said.nonce, peer)
    if not valid_node(greeting.name):
        raise PeerError(peer, f"has no proper name: {greeting.name[:_LONGEST_NAME]!r}")
    return Peer(BROKER, NodeId(greeting.name), greeting.life, greeting.address)
