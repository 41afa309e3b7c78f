"""Clients that look for the kept topics of a filter are told of each, and are members of none (ARC-K1)."""

from __future__ import annotations

from ordercast.core.ids import Topic
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import FENCED, KeptFound, LookFor, LookNoMore
from ordercast.pubsub.keeping import KeepRule
from tests.support.topics_tree import Somebody, Tree

PT, ES, NEWS = Topic("orders.PT"), Topic("orders.ES"), Topic("news.PT")


def kept_tree() -> Tree:
    tree = Tree({"b1": "b0", "b2": "b0"})
    keep(tree, KeepRule("orders.>"))
    return tree


def keep(tree: Tree, rule: KeepRule) -> None:
    tree.brokers["b0"].archive.order(rule)
    tree.run()


def looker(tree: Tree, pattern: str = "*.*", rights: Rights | None = None) -> Somebody:
    somebody = tree.client("looker", "b2", rights=rights)
    somebody.say(LookFor(pattern))
    tree.run()
    return somebody


def begin(tree: Tree, *topics: Topic) -> Somebody:
    somebody = tree.client("x", "b1")
    for topic in topics:
        somebody.subscribe(topic)
    tree.run()
    return somebody


def told(somebody: Somebody) -> list[Topic]:
    return [topic for packet in somebody.of(KeptFound) for topic in packet.topics]


def test_who_looks_is_told_of_kept_topics_and_of_each_that_begins_later_anywhere() -> None:
    tree = kept_tree()
    x = begin(tree, PT, NEWS)
    somebody = looker(tree)
    assert told(somebody) == [PT]

    x.subscribe(ES)
    tree.run()

    assert told(somebody) == [PT, ES]
    assert {topic: set(tree.brokers["b0"].book.live(topic)) for topic in (PT, ES)} == {PT: {x.origin}, ES: {x.origin}}


def test_a_rule_that_is_made_later_adds_its_topics() -> None:
    tree = kept_tree()
    begin(tree, NEWS)
    somebody = looker(tree, "news.*")
    assert [packet.why_not for packet in somebody.of(KeptFound)] == ["no topic that it takes in is kept"]

    keep(tree, KeepRule("news.>"))

    assert somebody.of(KeptFound)[-1] == KeptFound("news.*", (NEWS,))


def test_nobody_is_told_of_what_it_may_not_read_nor_of_anything_once_it_looks_no_more() -> None:
    tree = kept_tree()
    somebody = looker(tree, rights=Rights(subscribe=("orders.PT",)))
    x = begin(tree, PT, ES)
    assert told(somebody) == [PT]

    somebody.say(LookNoMore("*.*"))
    x.subscribe(Topic("orders.FR"))
    tree.run()
    assert told(somebody) == [PT]

    somebody.say(LookFor("a..b"))
    tree.run()
    assert somebody.of(KeptFound)[-1].why_not not in ("", FENCED)
