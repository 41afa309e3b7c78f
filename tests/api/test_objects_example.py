"""The example of replicated objects does what it says, without a terminal too."""

from __future__ import annotations

from tests.api.test_pubsub_examples import output
from tests.support.loop import run_async


def test_a_shared_board_outlives_a_killed_player() -> None:
    lines = run_async(lambda: output("shared_board.py", "--seconds", "0.5"))
    board = lines[-11:-3]
    assert {len(row) for row in board} == {24}
    assert set("".join(board)) <= {"\u00b7", "a", "b", "c", "d"}
    assert len(set("".join(board))) > 1
    assert lines[-2:] == [
        "moved at first: ann bob cho",
        "bob was killed; dan moved in his place; the others went on: True",
    ]
