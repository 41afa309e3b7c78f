"""The handshake: only who knows the token, now and for this very greeting, is believed."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.net.nodes import handshake
from ordercast.net.nodes.handshake import Hello, Identity
from ordercast.net.wire import greetings
from ordercast.net.wire.greetings import Challenge

ANN, BOB = NodeId("ann"), NodeId("bob")
TOKEN = b"secret"


def identity(node: NodeId, token: bytes = TOKEN) -> Identity:
    return Identity("c", node, 2, token)


def hello(asked: Challenge, token: bytes = TOKEN) -> Hello:
    return handshake.hello(identity(ANN, token), BOB, 1, 17, asked)


def test_both_ends_believe_each_other() -> None:
    asked = handshake.challenge()
    said = hello(handshake.check_challenge(over_the_wire(asked), "bob"))
    heard = handshake.check_hello(over_the_wire(said), identity(BOB), asked, "ann")
    assert (heard.node, heard.life, heard.peer_life, heard.received) == ("ann", 2, 1, 17)
    answer = handshake.welcome(identity(BOB), 5, heard)
    welcome = handshake.check_welcome(over_the_wire(answer), identity(ANN), said, "bob")
    assert (welcome.node, welcome.life, welcome.received) == ("bob", 2, 5)


def over_the_wire(greeting: handshake.Greeting) -> handshake.Greeting:
    return handshake.decode(greetings.encode(greeting), "peer")


def test_a_recorded_hello_is_worthless_for_the_next_challenge() -> None:
    recorded = hello(handshake.challenge())
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.check_hello(recorded, identity(BOB), handshake.challenge(), "ann")


@pytest.mark.parametrize("change", [{"life": 3}, {"received": 18}, {"node": "eve"}, {"peer_life": 0}])
def test_an_altered_hello_is_not_believed(change: dict[str, object]) -> None:
    asked = handshake.challenge()
    altered = msgspec.structs.replace(hello(asked), **change)
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.check_hello(altered, identity(BOB), asked, "ann")


def test_an_acceptor_without_the_token_is_not_believed() -> None:
    said = hello(handshake.challenge())
    answer = handshake.welcome(identity(BOB, b"a guess"), 0, said)
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.check_welcome(answer, identity(ANN), said, "bob")


def test_the_wrong_acceptor_is_not_believed() -> None:
    said = hello(handshake.challenge())
    answer = handshake.welcome(identity(NodeId("cho")), 0, said)
    with pytest.raises(PeerError, match="is cho and not bob"):
        handshake.check_welcome(answer, identity(ANN), said, "bob")


def test_another_version_is_named() -> None:
    newer = msgspec.structs.replace(handshake.challenge(), version=handshake.VERSION + 1)
    with pytest.raises(PeerError, match=f"speaks version {handshake.VERSION + 1}"):
        handshake.check_challenge(newer, "bob")


def test_a_refusal_carries_its_reason() -> None:
    with pytest.raises(PeerError, match="refuses: because"):
        over_the_wire(greetings.refusal("because"))


def test_greetings_out_of_turn_are_refused() -> None:
    asked = handshake.challenge()
    with pytest.raises(PeerError, match="does not say hello"):
        handshake.check_hello(asked, identity(BOB), asked, "ann")
    with pytest.raises(PeerError, match="does not answer the hello"):
        handshake.check_welcome(asked, identity(ANN), hello(asked), "bob")
    with pytest.raises(PeerError, match="does not speak Ordercast"):
        handshake.check_challenge(hello(asked), "bob")
