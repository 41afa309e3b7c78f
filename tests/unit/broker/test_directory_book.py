"""The directory of brokers in short (BRK-J6): who comes and goes leaves nothing, and nobody brings it back."""

from __future__ import annotations

from random import Random

import pytest

from ordercast.broker.tree.directory_book import NEVER, DirectoryBook
from ordercast.core.ids import NodeId
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import Change, KnownDirectory, Stamp
from ordercast.sim.connections import same_everywhere
from tests.support.overlay_lab import Lab

TWO = {NodeId("b0"): "b0:1", NodeId("b1"): "b1:1"}
NOTHING = KnownDirectory()


def joined(name: str, stamp: Stamp) -> Change:
    return Change(NodeId(name), f"{name}:1", stamp)


def left(name: str, stamp: Stamp) -> Change:
    return Change(NodeId(name), "", stamp)


def book(*changes: Change) -> DirectoryBook:
    made = DirectoryBook(TWO, NOTHING)
    made.merge(KnownDirectory(changes))
    return made


def test_a_broker_that_joined_and_left_is_in_no_book_once_that_is_settled() -> None:
    known = book(joined("b2", (1, 1)), left("b2", (1, 2)))

    known.settle((1, 2))

    assert known.directory() == TWO
    assert known.known() == KnownDirectory((), (1, 2), TWO)


def test_whoever_was_away_cannot_bring_back_a_broker_that_has_left() -> None:
    away = book(joined("b2", (1, 1)))
    known = book(joined("b2", (1, 1)), left("b2", (1, 2)))
    known.settle((1, 2))

    assert not known.merge(away.known())
    assert away.merge(known.known())

    assert known.directory() == away.directory() == TWO


def test_a_change_that_was_never_concluded_is_void_once_a_later_one_is() -> None:
    """The root of term 1 died before enough brokers had recorded b2; the next one has never heard of it."""
    lonely = book(joined("b2", (1, 1)))
    known = book(joined("b3", (2, 1)))
    known.settle((2, 1))

    lonely.merge(known.known())
    known.merge(book(joined("b2", (1, 1))).known())

    assert set(lonely.directory()) == set(known.directory()) == {"b0", "b1", "b3"}


def test_what_is_not_concluded_when_something_is_settled_still_counts() -> None:
    known = book(joined("b2", (1, 1)), joined("b3", (1, 2)))

    known.settle((1, 1))

    assert known.known() == KnownDirectory((joined("b3", (1, 2)),), (1, 1), TWO | {NodeId("b2"): "b2:1"})
    assert set(known.directory()) == {"b0", "b1", "b2", "b3"}


def test_a_configuration_counts_until_something_is_settled_and_is_told_to_nobody() -> None:
    assert DirectoryBook(TWO, NOTHING).known() == NOTHING
    assert DirectoryBook({}, NOTHING).directory() == {}

    later = DirectoryBook(TWO, KnownDirectory((left("b1", (1, 2)),), (1, 1), TWO | {NodeId("b2"): "b2:1"}))

    assert set(later.directory()) == {"b0", "b2"}


@pytest.mark.parametrize("seed", range(40))
def test_books_merge_alike_in_any_order(seed: int) -> None:
    draw = Random(seed)
    root, told = book(), [book().known()]
    for serial in range(1, 12):
        name, stamp = f"b{draw.randint(2, 5)}", (1 + serial // 4, serial)
        gone = name in root.directory() and draw.random() < 0.6
        root.merge(KnownDirectory((left(name, stamp) if gone else joined(name, stamp),)))
        told.append(root.known())
        if draw.random() < 0.5:
            root.settle(stamp)
            told.append(root.known())

    for _ in range(4):
        draw.shuffle(told)
        other = book()
        for known in told:
            other.merge(known)
        assert other.directory() == root.directory()
        assert other.newest == root.newest


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
def test_brokers_that_come_and_go_leave_nothing_behind(partitions: str) -> None:
    """BRK-J6, at every broker, while another one is down all the time."""
    parents = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1"}
    settings = BrokerSettings(partitions=partitions)  # type: ignore[arg-type]
    lab = Lab(parents, settings, latency=same_everywhere(5.0), durable=True)
    lab.world.crash("b2")
    lab.settle()
    names = [f"x{number}" for number in range(12)]

    for name in names:
        lab.add(name, seeds=("b1:1",))
        lab.world.start(name)
        lab.settle_members([name], [])
        lab.world.act(name, lab.overlay(name).leave)
        lab.settle_members([], [name])

    for node in ("b0", "b1", "b3"):
        tree = lab.overlay(node)
        remembered = [*tree.lives, *tree.dead, *tree.unreachable, *tree.joining._recorded, *tree.joining._addresses]
        assert set(remembered) <= {*parents, names[-1]}
        assert len(tree.book.known().changes) <= 1
        assert set(tree.directory) == set(parents)

    lab.world.start("b2")
    lab.settle()
    assert set(lab.overlay("b2").directory) == set(parents)
    assert lab.overlay("b2").book.settled > NEVER


def test_a_broker_that_was_struck_off_while_it_was_away_joins_again() -> None:
    """It hears a directory without itself, crashes before it is welcomed, and asks again in its next life."""
    three = {"b0": None, "b1": "b0", "b2": "b0"}
    lab = Lab(three, BrokerSettings(), latency=same_everywhere(5.0), durable=True)
    lab.world.crash("b2")
    lab.run(5000)
    refused: list[str] = []
    lab.world.act("b0", lambda: refused.append(lab.overlay("b0").remove(NodeId("b2"))))
    lab.settle_members([], ["b2"])
    assert refused == [""]

    lab.world.start("b2")
    while lab.overlay("b2").member:
        lab.run(1)
    lab.world.crash("b2")
    lab.run(500)
    lab.world.start("b2")
    lab.settle_members(["b2"], [])

    assert lab.overlay("b2").member
    assert "b2" in lab.overlay("b1").directory
