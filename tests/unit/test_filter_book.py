"""What the swarm of brokers holds filters to: the checker sees what a follower was never given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ordercast.core.ids import NodeId, Topic
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.world import PubsubWorld
from ordercast.trace.arrow_schema import EVENT_SCHEMA
from tests.support.pubsub_lab import FilterBook

Row = tuple[Any, ...]


class Followed:
    """Ann follows everything and is told at 10 which topics there are; bob has all that is published."""

    def __init__(self, *there: str) -> None:
        self.clock = SimpleNamespace(now=10)
        self.clients = {NodeId(name): self.client(name) for name in ("ann", "bob")}
        self.filter_watchers: list[Any] = []
        self.delivery_watchers: list[Any] = []
        self.rows: list[Row] = []
        self.book = FilterBook(cast("PubsubWorld", self))
        self.book._follows(self.clients[NodeId("ann")], ">", tuple(map(Topic, there)))

    @staticmethod
    def client(name: str) -> SimClient:
        return cast("SimClient", SimpleNamespace(node=NodeId(name), alive=True, session=0))

    def row(
        self, node: str, kind: str, time: int, topic: str | None = None, msg: str | None = None, **info: str
    ) -> None:
        row = dict(node=node, kind=kind, time_ns=time, topic=topic, msg=msg, info=list(info.items()))  # noqa: C408
        self.rows.append(tuple(row.get(name) for name in EVENT_SCHEMA.names))

    def published(self, time: int, topic: str, *, to: tuple[str, ...] = ("bob",)) -> None:
        message = f"bob/{topic}#{time}"
        self.row("bob", "publish", time, topic, message)
        for name in to:
            self.book.delivered[NodeId(name)].add(message)

    def missed(self) -> list[str]:
        return self.book.missed(self.rows)


def test_a_new_topic_is_owed_from_its_beginning() -> None:
    world = Followed()
    world.published(5, "new")
    world.published(11, "new")
    world.published(12, "new", to=("ann", "bob"))

    assert world.missed() == ["missed by ann, who follows >: bob/new#11"]


def test_a_topic_that_was_there_is_owed_from_the_subscription_to_it_on() -> None:
    world = Followed("old")
    world.published(15, "old")
    world.row("ann", "subscribe", 20, "old", broker="b0")
    world.published(25, "old")

    assert world.missed() == ["missed by ann, who follows >: bob/old#25"]


def test_a_topic_that_was_there_and_is_never_subscribed_to_is_a_fault() -> None:
    world = Followed("old")
    world.row("bob", "subscribe", 20, "old", broker="b0")

    assert world.missed() == ["ann, who follows >, never came to old"]


def test_what_an_earlier_session_had_subscribed_to_does_not_count() -> None:
    world = Followed("old")
    world.row("ann", "subscribe", 2, "old", broker="b0")
    world.row("ann", "recover", 4, state="lost")
    world.published(15, "old")

    assert world.missed() == ["ann, who follows >, never came to old"]


def test_what_nobody_was_given_is_owed_to_nobody() -> None:
    world = Followed()
    world.published(11, "new", to=())

    assert world.missed() == []
