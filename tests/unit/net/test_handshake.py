"""The handshake: only who knows the token, now and for this very greeting, is believed."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.core.process import Peer
from ordercast.net.wire import handshake
from ordercast.net.wire.credentials import BROKER, CLIENT, NODE, Credentials
from ordercast.net.wire.handshake import Challenge, Present

ANN, BOB = Peer(NODE, "ann", 2), Peer(NODE, "bob", 5)
KNOWN = Credentials(cluster="c", peer_token="secret", client_token="for clients")
GUESS = Credentials(cluster="c", peer_token="a guess")


def presented(asked: Challenge, known: Credentials = KNOWN, to: str = "bob") -> Present:
    return handshake.present(ANN, known, asked, "bob", to)


def over_the_wire(greeting: handshake.Greeting) -> handshake.Greeting:
    return handshake.decode(handshake.encode(greeting), "peer")


def test_both_ends_believe_each_other() -> None:
    asked = handshake.challenge()
    said = handshake.present(ANN, KNOWN, over_the_wire(asked), "bob", "bob")
    heard, answer = handshake.accept(BOB, KNOWN, over_the_wire(said), asked, "ann")
    assert (heard.kind, heard.name, heard.life) == ("node", "ann", 2)
    found = handshake.accepted(ANN, KNOWN, over_the_wire(answer), said, "bob")
    assert (found.kind, found.name, found.life) == ("node", "bob", 5)


def test_a_recorded_greeting_is_worthless_for_the_next_challenge() -> None:
    recorded = presented(handshake.challenge())
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.accept(BOB, KNOWN, recorded, handshake.challenge(), "ann")


@pytest.mark.parametrize("change", [{"life": 3}, {"to": ""}, {"name": "eve"}, {"address": "h:1"}, {"user": "u"}])
def test_an_altered_greeting_is_not_believed(change: dict[str, object]) -> None:
    asked = handshake.challenge()
    altered = msgspec.structs.replace(presented(asked), **change)
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.accept(BOB, KNOWN, altered, asked, "ann")


def test_an_acceptor_without_the_token_is_not_believed() -> None:
    asked = handshake.challenge()
    _, answer = handshake.accept(BOB, GUESS, presented(asked, GUESS), asked, "ann")
    with pytest.raises(PeerError, match="does not know the token"):
        handshake.accepted(ANN, KNOWN, answer, presented(asked), "bob")


def test_whoever_looks_for_somebody_else_is_not_taken_in() -> None:
    asked = handshake.challenge()
    with pytest.raises(PeerError, match="looks for cho, and this is bob"):
        handshake.accept(BOB, KNOWN, presented(asked, to="cho"), asked, "ann")


def test_the_wrong_acceptor_is_not_believed() -> None:
    asked = handshake.challenge()
    said = presented(asked, to="")
    _, answer = handshake.accept(Peer(NODE, "cho"), KNOWN, said, asked, "ann")
    meant = msgspec.structs.replace(said, to="bob")
    with pytest.raises(PeerError, match="is cho and not bob"):
        handshake.accepted(ANN, KNOWN, answer, meant, "bob")


@pytest.mark.parametrize(("kind", "acceptor"), [(CLIENT, NODE), (BROKER, NODE), (NODE, BROKER), (BROKER, CLIENT)])
def test_nobody_is_taken_in_by_a_process_of_a_kind_that_it_has_no_business_with(kind: str, acceptor: str) -> None:
    asked = handshake.challenge()
    said = handshake.present(Peer(kind, "ann"), KNOWN, asked, "bob")
    with pytest.raises(PeerError, match=f"does not present itself as somebody who may talk to a {acceptor}"):
        handshake.accept(Peer(acceptor, "bob"), KNOWN, said, asked, "ann")


def test_another_version_is_named() -> None:
    newer = msgspec.structs.replace(handshake.challenge(), version=handshake.VERSION + 1)
    with pytest.raises(PeerError, match=f"speaks version {handshake.VERSION + 1}"):
        presented(newer)


def test_a_refusal_carries_its_reason() -> None:
    with pytest.raises(PeerError, match="refuses: because"):
        over_the_wire(handshake.refusal("because"))


def test_greetings_out_of_turn_are_refused() -> None:
    asked = handshake.challenge()
    with pytest.raises(PeerError, match="does not present itself"):
        handshake.accept(BOB, KNOWN, asked, asked, "ann")
    with pytest.raises(PeerError, match="does not answer"):
        handshake.accepted(ANN, KNOWN, asked, presented(asked), "bob")
    with pytest.raises(PeerError, match="does not speak Ordercast"):
        handshake.present(ANN, KNOWN, presented(asked), "bob")


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_they_are_a_greeting_or_the_peers_fault(body: bytes) -> None:
    with suppress(PeerError):
        handshake.decode(body, "peer")
