"""The book of members: what it says does not depend on how it learned it, nor does what it keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordercast.broker.roster_book import RosterBook, departure, fence, written
from ordercast.core.ids import Origin, Topic

TOPICS = [Topic("s"), Topic("t")]
WHO = [Origin(name) for name in ("ann", "bob", "b1~0.0@t")]
joins = st.tuples(st.sampled_from(TOPICS), st.sampled_from(WHO), st.integers(1, 5))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), joins), st.tuples(st.just("depart"), joins), st.tuples(st.just("fence"), joins),
        st.tuples(st.just("prune"), st.integers(1, 100)),
    ),
    max_size=25,
)  # fmt: skip


@given(steps)
def test_who_counts_is_the_same_whether_it_was_asked_for_before_or_not(story: list[tuple[str, tuple]]) -> None:  # type: ignore[type-arg]
    asked, silent, now = RosterBook(), RosterBook(), 0
    for deed, what in story:
        for book in (asked, silent):
            if deed == "join":
                book.join(*what)
            elif deed == "depart":
                book.merge({}, departure(*what))
            elif deed == "fence":
                book.merge({}, fence(what[1]))
            else:
                book.prune(now + what, 60)  # type: ignore[operator]
        now += what if isinstance(what, int) else 0
        for topic in TOPICS:
            asked.live(topic)
    assert asked.roster() == silent.roster()
    assert asked.fences() == silent.fences()


@given(steps)
def test_all_changes_together_are_the_roster(story: list[tuple[str, tuple]]) -> None:  # type: ignore[type-arg]
    book, told = RosterBook(), {}
    for deed, what in story:
        if deed == "join":
            book.join(*what)
        elif deed != "prune":
            book.merge({}, departure(*what) if deed == "depart" else fence(what[1]))
        else:
            book.prune(what * 100, 60)
        told.update(book.changes())
        assert {topic: members for topic, members in told.items() if members} == book.roster()
    assert book.changes() == {}


def test_departures_are_forgotten_after_a_while_and_with_them_the_memberships() -> None:
    book = RosterBook()
    for n in range(1000):
        member = Origin(f"pub~{n}")
        book.merge({TOPICS[1]: (written(member, 1),)}, {})
        book.merge({}, departure(TOPICS[1], member, 1))
        book.prune(n, 100)
    assert len(book.ended) <= 101
    assert len(book.joined[TOPICS[1]]) <= 101


def test_fences_of_clients_are_kept() -> None:
    """Their sessions could come back."""
    book = RosterBook()
    book.merge({}, fence(WHO[0]))
    for now in (0, 1000):
        book.prune(now, 100)
    assert book.fenced(WHO[0])


def test_the_fence_of_an_adopter_that_was_no_member_is_forgotten_too() -> None:
    book = RosterBook()
    book.join(TOPICS[0], WHO[0], 1)
    book.merge({}, fence(WHO[2]))
    for now in (0, 1000):
        book.prune(now, 100)
    assert not book.fenced(WHO[2])
