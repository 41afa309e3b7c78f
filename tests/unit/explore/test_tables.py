"""The page about the explorer says what the explorer finds today."""

from __future__ import annotations

import pytest

from tests.properties.explored_tables import HEADS, PAGE, rows, written

SMALL = 6_000
"""States that are explored in a second or so."""


@pytest.mark.parametrize("table", HEADS)
def test_the_tables_of_the_page_are_not_old(table: str) -> None:
    page = written(PAGE.read_text(encoding="utf-8"), table)

    def is_small(begin: str) -> bool:
        counts = page.get(begin, "")
        return "* |" not in begin and (not counts or int(counts.split("|")[0].replace(",", "")) < SMALL)

    made = dict(rows(table, is_small))
    old = [begin for begin, counts in made.items() if begin not in page or counts not in (None, page[begin])]
    again = "python -m tests.properties.explored_tables --write (and --large, if rows marked * changed)"
    assert not old, f"{len(old)} rows are old, the first: {old[0]}; to make them anew: {again}"
    assert list(page) == list(made)
