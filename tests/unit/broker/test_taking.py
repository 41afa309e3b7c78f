"""Counts for the limits of clients and users are those that a look at all topics would give."""

from __future__ import annotations

from random import Random

import pytest

from ordercast.broker.topics.membership.taking import TakenTopics
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.filters import following, is_following

USERS = {Origin("shop.1~1"): "shop", Origin("shop.2~1"): "shop", Origin("bank~1"): "bank", Origin("n~1"): ""}
TOPICS = [Topic("a"), Topic("b"), Topic("c"), following("a.*"), following(">")]


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_the_topics_that_are_taken(seed: int) -> None:
    draw, taken = Random(seed), TakenTopics()
    model: dict[Origin, set[Topic]] = {origin: set() for origin in USERS}
    for _ in range(200):
        origin, topic = draw.choice(list(USERS)), draw.choice(TOPICS)
        match draw.randint(0, 5):
            case 0:
                taken.forget(origin)
                model[origin] = set()
            case 1 | 2:
                taken.discard(origin, topic)
                model[origin].discard(topic)
            case _:
                taken.add(origin, topic, USERS[origin])
                model[origin].add(topic)
        assert taken.of(origin) == model[origin]
        assert taken.count(origin) == sum(not is_following(name) for name in model[origin])
        for user in ("shop", "bank"):
            assert taken.by_user(user) == sum(len(model[mine]) for mine in USERS if USERS[mine] == user)
        assert taken.by_user("") == 0
    for origin in USERS:
        taken.forget(origin)
    assert taken.frozen() == TakenTopics().frozen(), "nothing is left of sessions that take part in nothing"
