"""Broken preventive broadcasts: the explorer breaks each of them, and not the original in the same scope."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.explore import OverlayScope, explore_overlay
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.settings import PreventiveOptions
from tests.mutants import preventive_mutants as mutants

LINE = ((0, 1), (1, 2))
OPENS = ("n0 opens n2 at 0 via n1",)
TIGHT = PreventiveOptions(script=OPENS, max_buffer=0, fallback="flood")
SCOPES: dict[type[Preventive], dict[str, Any]] = {
    mutants.NoPhase: {"nodes": 3, "edges": LINE, "options": PreventiveOptions(script=OPENS)},
    mutants.AnyAck: {
        "nodes": 3, "edges": LINE, "publishers": (0, 0, 0, 0),
        "options": PreventiveOptions(script=OPENS, max_buffer=1, fallback="flood"),
    },
    mutants.EmptyJoiner: {
        "nodes": 3, "edges": ((0, 1), (0, 2)), "joins": (2,), "publishers": (0, 0),
        "options": PreventiveOptions(script=("n1 opens n2 at 0 via n0",)),
    },
    mutants.RestartsFirst: {"nodes": 3, "edges": LINE, "publishers": (0, 0, 0), "options": TIGHT},
    mutants.Unordered: {
        "nodes": 3, "edges": LINE, "publishers": (0, 0, 0), "options": PreventiveOptions(script=OPENS),
    },
    mutants.EmptyHanded: {"nodes": 3, "edges": LINE, "options": PreventiveOptions(script=("n0 opens n2 at 0",))},
    mutants.TwoContacts: {
        "nodes": 3, "edges": ((0, 1), (0, 2), (1, 2)), "joins": (2,), "publishers": (0, 0),
        "options": PreventiveOptions(),
    },
    mutants.DirectLock: {"nodes": 3, "edges": LINE, "options": PreventiveOptions(script=OPENS)},
    mutants.Downgrades: {"nodes": 3, "edges": LINE, "options": PreventiveOptions(script=("n0 opens n1 at 0",))},
}  # fmt: skip


@pytest.mark.parametrize("mutant", SCOPES, ids=lambda mutant: mutant.__name__)
def test_the_explorer_breaks_the_mutant_and_not_the_original(mutant: type[Preventive]) -> None:
    broken = explore_overlay(OverlayScope(info=mutants.entry_of(mutant), **SCOPES[mutant]))
    assert broken.verdict == "violated"
    assert explore_overlay(OverlayScope(info=mutants.entry_of(Preventive), **SCOPES[mutant])).verdict == "holds"


def test_a_lock_over_a_link_that_is_not_safe_breaks_the_order() -> None:
    """C8. The original is explored in this scope by `python -m tests.properties.preventive_scopes`: it takes longer."""
    script = ("n3 opens n2 at 0 via n0", "n0 opens n2 at 1 via n3")
    scope = OverlayScope(
        info=mutants.entry_of(mutants.PendingRoute), nodes=4, edges=((0, 1), (1, 2), (0, 3)), publishers=(0, 0),
        options=PreventiveOptions(script=script),
    )  # fmt: skip
    assert explore_overlay(scope).verdict == "violated"


def test_locks_that_are_tried_again_hold_if_numbers_and_order_are_right() -> None:
    """Restarts by digest are a choice; the mutants above that restart by locks fail for their own mistakes."""
    scope = OverlayScope(
        info=mutants.entry_of(mutants.LocksAgain), nodes=3, edges=LINE, publishers=(0, 0, 0), options=TIGHT
    )
    assert explore_overlay(scope).verdict == "holds"
