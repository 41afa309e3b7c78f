"""Publications that travel together: pieces that fit a packet, runs without a gap, and what a log keeps of them."""

from __future__ import annotations

import random

import pytest

from ordercast.broker.topics.state.topic import TopicNode
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.batches import follow_each_other, new_ones, pieces, run_of
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received

TOPIC = Topic("prices")
NOBODY = ClosedSessions()


def entry(origin: str, number: int, size: int = 0, *keys: str) -> Publication:
    return Publication(Origin(origin), number, TOPIC, bytes(size), keys=keys or ("",))


def some_entries(draw: random.Random) -> list[Publication]:
    """Runs of a few publishers behind each other, with gaps now and then."""
    entries, next_of = [], dict.fromkeys("abc", 1)
    for _ in range(draw.randrange(1, 8)):
        origin = draw.choice("abc")
        for _ in range(draw.randrange(1, 9)):
            entries.append(entry(origin, next_of[origin], draw.randrange(90), *["k" * draw.randrange(9)]))
            next_of[origin] += 1 + (draw.random() < 0.1)
    return entries


def cut_one_by_one(entries: list[Publication], most: int, most_bytes: int) -> list[list[Publication]]:
    """What `pieces` promises, in the plainest way."""
    found: list[list[Publication]] = []
    size = 0
    for one in entries:
        letters = len(one.origin) + len(one.topic) + sum(map(len, one.keys))
        length = len(one.payload) + 4 * letters + 40
        if not found or len(found[-1]) == most or size + length > most_bytes:
            found.append([])
            size = 0
        found[-1].append(one)
        size += length
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_piece_ends_where_one_more_would_be_too_many_or_too_much(seed: int) -> None:
    draw = random.Random(seed)
    entries = some_entries(draw)
    most, most_bytes = draw.randrange(1, 9), draw.randrange(100, 900)

    assert list(map(list, pieces(entries, most, most_bytes))) == cut_one_by_one(entries, most, most_bytes)


def test_a_run_is_one_publishers_numbers_without_a_gap() -> None:
    run = run_of([entry("a", 4, 10), entry("a", 5, 20)])

    assert run is not None
    assert run == ("a", 4, 5, 30)
    assert run_of([]) is None
    assert run_of([entry("a", 4), entry("a", 6)]) is None
    assert run_of([entry("a", 4), entry("b", 5)]) is None


@pytest.mark.parametrize("seed", range(40))
def test_what_is_new_is_the_same_with_and_without_the_knowledge_of_a_run(seed: int) -> None:
    draw = random.Random(seed)
    one, other = Received(), Received()
    for _ in range(12):
        start = draw.randrange(1, 20)
        batch = [entry(draw.choice("ab"), start) for _ in range(2)]
        if draw.random() < 0.7:
            batch = [entry("a", start + i) for i in range(draw.randrange(1, 5))]

        row = follow_each_other(batch)
        assert list(new_ones(one, batch, NOBODY, in_a_row=row)) == list(new_ones(other, batch, NOBODY, in_a_row=False))
        assert one.summary() == other.summary()


@pytest.mark.parametrize("seed", range(40))
def test_a_log_of_runs_forgets_what_a_log_of_single_entries_forgets(seed: int) -> None:
    draw = random.Random(seed)
    runs, singles = TopicNode(TOPIC), TopicNode(TOPIC)
    entries = [one for one in some_entries(draw) if runs.have.add(one.origin, one.number)]
    singles.have.update((one.origin, one.number) for one in entries)
    while entries:
        batch = [entries.pop(0) for _ in range(min(len(entries), draw.randrange(1, 6)))]
        runs.append(batch, run_of(batch))
        for one in batch:
            singles.append([one])
    for _ in range(4):
        base = {Origin(origin): draw.randrange(30) for origin in "abc" if draw.random() < 0.6}

        assert runs.raise_base(base, NOBODY) == singles.raise_base(base, NOBODY)
        assert runs.log == singles.log
        assert runs.weight >= singles.weight
        runs.check()
