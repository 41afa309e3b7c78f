"""What a client says about others is proven or not believed (BRK-M12); about itself it lies to its own cost."""

from __future__ import annotations

import pytest

from ordercast.core.messages import Guarantee
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import Entries, Flow, Refused, Resume, Sealed, StableReport
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.pubsub.seals import SEAL_BYTES, Seals, seal_key
from tests.support.topics_tree import Somebody, T, Tree

KEY = seal_key("the secret of the brokers", "shop")


def _tree(**settings: int) -> Tree:
    return Tree({"b1": "b0", "b2": "b1"}, seal_key=KEY, **settings)


def _liar(tree: Tree) -> Somebody:
    """It may subscribe to everything and publish nothing."""
    liar = tree.client("mallory", "b2", rights=Rights(publish=()))
    liar.subscribe()
    tree.run()
    assert liar.live
    return liar


def _transfer(origin: str, number: int, *keys: str, guarantee: Guarantee = Guarantee.CAUSAL) -> Publication:
    return Publication(origin, number, T, b"100 to mallory", guarantee, keys or ("k",))


def _says(tree: Tree, liar: Somebody, base: Vector, *entries: Publication, seals: bytes = b"") -> None:
    if seals:
        liar.say(Sealed(T, seals[: len(base) * SEAL_BYTES], seals[len(base) * SEAL_BYTES :]))
    liar.say(Resume(T, liar.attach_no, liar.have.summary(), base, entries))
    tree.run()


@pytest.mark.parametrize("seals", [b"", bytes(SEAL_BYTES), b"too short"])
def test_nobody_publishes_under_the_name_of_another(seals: bytes) -> None:
    tree = _tree()
    alice, liar = tree.member("alice", "b0"), _liar(tree)
    _says(tree, liar, {}, _transfer("alice", 1), _transfer("bob", 1), _transfer("mallory", 1), seals=seals)
    assert alice.delivered == []
    assert tree.log_of("b2") == []


def test_a_publication_that_was_changed_or_moved_to_another_number_is_not_the_one_that_was_sealed() -> None:
    tree = _tree()
    alice, liar = tree.member("alice", "b0"), _liar(tree)
    alice.publish("k")
    tree.run()
    (real,) = liar.history
    seal = liar.of(Sealed)[-1].entries
    assert len(seal) == SEAL_BYTES
    _says(tree, liar, {}, Publication("alice", 2, T, real.payload, real.guarantee, real.keys), seals=seal)
    assert alice.delivered == ["alice1"]
    assert tree.log_of("b2") == ["alice1"]


def test_a_base_that_a_client_makes_up_swallows_nothing() -> None:
    tree = _tree()
    alice, bob, liar = tree.member("alice", "b0"), tree.member("bob", "b1"), _liar(tree)
    _says(tree, liar, {"alice": 6, "bob": 1 << 40}, seals=bytes(2 * SEAL_BYTES))
    for _ in range(6):
        alice.publish("k")
    tree.run()
    assert bob.delivered == [f"alice{number}" for number in range(1, 7)]


def test_gaps_that_a_client_makes_up_do_not_close_the_flow_of_a_topic() -> None:
    tree = _tree(buffer_soft_limit=4)
    alice, liar = tree.member("alice", "b2"), _liar(tree)
    _says(tree, liar, {}, *(_transfer("alice", 2 * number) for number in range(1, 9)))
    assert alice.of(Flow) == []


def test_the_only_reader_cannot_report_what_was_never_published() -> None:
    """Else the base would grow beyond it, and whoever reads later would not be owed what comes then."""
    tree = _tree()
    alice, liar = tree.member("alice", "b0", receives=False), _liar(tree)
    liar.say(StableReport(T, {"alice": 1 << 40, "bob": 7}))
    tree.run()
    tree.pass_time(1000)
    bob = tree.member("bob", "b1")
    alice.publish("k")
    bob.publish("k")
    tree.run()
    assert sorted(bob.delivered) == ["alice1", "bob1"]


def test_what_brokers_have_sealed_repairs_a_tree_that_has_forgotten_it() -> None:
    tree = _tree()
    alice, bob = tree.member("alice", "b0"), tree.member("bob", "b2")
    alice.publish("k")
    alice.publish("k", guarantee="total")
    tree.run()
    seals = b"".join(packet.entries for packet in bob.of(Sealed))
    other = _tree()  # Brokers of the same cluster, which know nothing any more.
    again, reader = other.client("bob", "b2"), other.member("carol", "b0")
    again.have, again.history = bob.have, []
    again.say(Sealed(T, b"", seals))
    again.say(Resume(T, 1, bob.have.summary(), {}, tuple(bob.history)))
    other.run()
    assert reader.delivered == bob.delivered == ["alice1", "alice2"]


def test_a_base_that_was_sealed_is_believed_by_every_broker_with_the_key_and_by_no_other() -> None:
    tree = _tree()
    seals = Seals(KEY).of_base(T, {"alice": 3, "bob": 9})
    liar = _liar(tree)
    _says(tree, liar, {"alice": 3, "bob": 9}, seals=seals)
    assert tree.brokers["b0"].nodes[T].base == {"alice": 3, "bob": 9}
    assert Seals(seal_key("another", "shop")).proven_base(T, {"alice": 3, "bob": 9}, seals) == {}
    assert Seals(KEY).proven_base(T, {"alice": 4, "bob": 9}, seals) == {"bob": 9}


def test_without_a_secret_a_client_is_believed_but_no_broker_contradicts_itself() -> None:
    tree = Tree({"b1": "b0"})
    alice, bob = tree.member("alice", "b0"), tree.member("bob", "b1")
    tree.freeze("b1", "b0")
    alice.publish("k", guarantee="total")
    tree.carry("alice", "b0")
    tree.carry("b0", "b1")
    bob.say(Resume(T, 1, {}, {}, (_transfer("alice", 1),)))
    tree.thaw("b1", "b0")
    tree.run()  # Looks at the invariants after every packet.
    assert bob.of(Entries) or alice.of(Entries)


def test_a_payload_above_the_limit_is_refused_by_name_and_the_next_one_is_not() -> None:
    tree = Tree({"b1": "b0"}, max_payload_bytes=10)
    alice, bob = tree.member("alice", "b0"), tree.member("bob", "b1")
    sizes = (10, 11, 10)
    alice.say(Entries(T, tuple(Publication("alice", i, T, bytes(n), keys=("k",)) for i, n in enumerate(sizes, 1))))
    tree.run()
    (refused,) = alice.of(Refused)
    assert (refused.number, refused.reason) == (2, "its payload has 11 bytes, and max_payload_bytes is 10")
    assert [len(entry.payload) for entry in bob.history] == [10, 0, 10]
    assert [entry.is_void for entry in bob.history] == [False, True, False]


def test_who_has_no_right_publishes_nothing_under_its_own_name_either() -> None:
    tree = _tree()
    alice, liar = tree.member("alice", "b0"), _liar(tree)
    liar.publish("k")
    _says(tree, liar, {"mallory": 5}, _transfer("mallory", 6))
    assert alice.delivered == []
