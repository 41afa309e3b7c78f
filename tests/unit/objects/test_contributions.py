"""The state of objects: what replicas agree on, whatever came in which order, and how little of it there is."""

from __future__ import annotations

import itertools
import random

import pytest

from ordercast.core.errors import PeerError
from ordercast.objects.contributions import (
    MOST_SPEAKERS,
    Contribution,
    Contributions,
    Elements,
    Maker,
    Put,
    Total,
    Word,
    decode_update,
    encode_update,
)  # fmt: skip
from ordercast.protocols.cluster.events import value_of

Update = tuple[Contribution, Maker]


def made(contribution: Contribution, *, by: str = "ann", life: int = 0, entry: int = 0, epoch: int = 1, seq: int = 1,
         stamp: int = 1) -> Update:  # fmt: skip
    return contribution, Maker(by, life, entry, value_of(epoch, seq), (stamp, entry))


def replica(*updates: Update) -> Contributions:
    state = Contributions()
    for update in updates:
        state.take(*update)
    return state


def values(state: Contributions) -> tuple[object, ...]:
    return state.register("door"), state.count("visits"), state.elements("guests"), state.words("record")


UPDATES = [
    made(Put("door", "open"), stamp=3),
    made(Put("door", "shut"), entry=1, stamp=3),
    made(Total("visits", 4), stamp=1),
    made(Total("visits", 6), seq=2, stamp=5),
    made(Total("visits", 9), by="bob", epoch=2, stamp=9),
    made(Total("visits", 1), by="cho", entry=1, stamp=2),
    made(Elements("guests", ("ann", 7)), stamp=4),
    made(Elements("guests", (b"x", "ann")), entry=1, stamp=6),
    made(Word("record", 3), stamp=7),
    made(Word("record", 5), life=1, stamp=2),
    made(Word("record", 8), by="bob", entry=1, stamp=8),
]


def test_replicas_agree_whatever_the_order_in_which_updates_come() -> None:
    expected = ("shut", 10, {"ann", 7, b"x"}, [5, 8])
    for seed in range(60):
        shuffled = random.Random(seed).sample(UPDATES, len(UPDATES))
        assert values(replica(*shuffled)) == expected


def test_states_merge_to_what_all_have_seen_in_any_order_and_any_number_of_times() -> None:
    parts = [replica(*UPDATES[i::3]) for i in range(3)]
    for order in itertools.permutations(parts):
        merged = Contributions()
        for part in (*order, *order):
            merged.install(part.snapshot(), "somebody")
        assert values(merged) == values(replica(*UPDATES))


def test_a_year_of_writers_that_come_and_go_leaves_no_more_than_the_objects_themselves() -> None:
    """Ten thousand lives write under two entries, each going on where the owner before had come to."""
    state, fresh = Contributions(), replica(*UPDATES)
    for number in range(10_000):
        entry, epoch = number % 2, 10 + number
        who = f"writer-{number}"
        place = {"by": who, "entry": entry, "epoch": epoch, "stamp": 100 + number}
        state.take(*made(Total("visits", state.total("visits", entry) + 1), **place))  # type: ignore[arg-type]
        state.take(*made(Put("door", who), **place))  # type: ignore[arg-type]
        state.take(*made(Elements("guests", ("ann",)), **place))  # type: ignore[arg-type]
    assert state.count("visits") == 10_000
    assert len(state.snapshot()) < len(fresh.snapshot()) + 200


def test_of_an_object_that_a_function_merges_those_that_spoke_last_count_at_every_replica() -> None:
    said = [made(Word("record", i), by=f"p{i}", stamp=i) for i in range(MOST_SPEAKERS + 50)]
    one, other = replica(*said), replica(*reversed(said))
    assert one.words("record") == other.words("record") == list(range(50, MOST_SPEAKERS + 50))
    one.install(replica(*said[:40]).snapshot(), "somebody who is late")
    assert one.words("record") == other.words("record")


def test_a_set_repeats_its_newest_elements_within_bounds() -> None:
    state = replica(made(Elements("guests", tuple(range(1_000)))), made(Elements("long", ("a" * 5_000, "b"))))
    assert state.repeated("guests") == list(range(968, 1_000))
    assert state.repeated("long") == ["b"]
    assert state.repeated("nobody") == []


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x00", encode_update(Put("", 1)), encode_update(Put("x" * 300, 1)),
     encode_update(Elements("guests", ([1],))), encode_update(Elements("guests", (True,))),
     encode_update(Total("visits", "many"))],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_is_no_update_of_an_object_is_refused_with_its_maker(payload: bytes) -> None:
    with pytest.raises(PeerError, match="ann"):
        decode_update(payload, "ann")


@pytest.mark.parametrize("state", [b"\xc1", b"\x90", b"\x94\x80\x80\x81\xa1x\x91\xc2\x80", b"\x01"])
def test_what_is_no_state_is_refused_and_changes_nothing(state: bytes) -> None:
    known = replica(*UPDATES)
    before = known.snapshot()
    with pytest.raises(PeerError):
        known.install(state, "ann")
    assert known.snapshot() == before
