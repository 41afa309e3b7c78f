"""A violation is drawn as what happened where: histories run to the right, and the wrong arrow stands out."""

from __future__ import annotations

import re

from ordercast.report.spacetime import diagram
from ordercast.verify.verdict import Witness, WitnessEvent


def event(node: str, kind: str, message: str, seq: int | None) -> WitnessEvent:
    return WitnessEvent(node, kind, message, seq)


LATE = Witness(
    "causal", "cho", ["ann#1", "bob#1"], ["cho delivered bob#1 first"],
    [
        event("cho", "deliver", "bob#1", 4), event("cho", "deliver", "ann#1", 9), event("bob", "publish", "bob#1", 7),
        event("bob", "deliver", "ann#1", 6), event("ann", "publish", "ann#1", 30),
    ],
    "ann#1",
)  # fmt: skip


def order(drawing: str) -> list[str]:
    """What happens, from left to right."""
    told = re.findall(r"<g><title>([^<]*)</title>", drawing)
    return [words.rpartition(",")[0] for words in told]


def test_messages_are_published_before_they_are_delivered_whatever_the_numbers_of_other_nodes() -> None:
    assert order(diagram("d", LATE)) == [
        "ann: publish ann#1",
        "bob: deliver ann#1",
        "bob: publish bob#1",
        "cho: deliver bob#1",
        "cho: deliver ann#1",
    ]


def test_only_the_arrow_of_the_wrong_delivery_is_red() -> None:
    drawing = diagram("d", LATE)
    assert drawing.count("arrow wrong") == 1
    assert drawing.count('class="arrow"') == 2
    assert "url(#d-wrong)" in drawing


def test_what_was_never_delivered_is_a_cross_at_the_end() -> None:
    never = Witness(
        "agreement", "bob", ["ann#1"], ["never"],
        [event("bob", "deliver", "ann#1", None), event("ann", "publish", "ann#1", 3)], "ann#1",
    )  # fmt: skip
    drawing = diagram("d", never)
    assert order(drawing) == ["ann: publish ann#1", "bob: deliver ann#1"]
    assert "cross wrong" in drawing
    assert "arrow wrong never" in drawing


def test_a_delivery_before_its_publication_keeps_the_histories() -> None:
    early = Witness(
        "integrity", "bob", ["ann#1"], ["early"],
        [event("bob", "deliver", "ann#1", 1), event("bob", "publish", "bob#1", 2), event("ann", "deliver", "bob#1", 1),
         event("ann", "publish", "ann#1", 2)], "ann#1",
    )  # fmt: skip
    told = order(diagram("d", early))
    assert told.index("bob: deliver ann#1") < told.index("bob: publish bob#1")
    assert told.index("ann: deliver bob#1") < told.index("ann: publish ann#1")


def test_names_of_others_cannot_become_markup() -> None:
    named = Witness(
        "fifo", "<b>", ["<i>"], ["<u>"], [event("<b>", "deliver", "<i>", 2), event("ann", "publish", "<i>", 1)], "<i>"
    )
    assert not re.search(r"<[biu]>", diagram("d", named))


def test_a_small_diagram_fits_on_a_phone() -> None:
    small = Witness("fifo", "cho", ["ann#1"], ["..."], LATE.events[1:4], "ann#1")

    assert "min-width: 280px" in diagram("d", small)
    assert "min-width: 280px" not in diagram("d", LATE)
