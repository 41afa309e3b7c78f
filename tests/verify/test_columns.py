"""Columns survive the disk, tasks do not depend on how they are cut, and the certificate's checker is strict."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ordercast.trace.store import TraceError
from ordercast.verify.build import prepare
from ordercast.verify.columns import Arrays, open_columns
from ordercast.verify.judge import conclude, judge_trace
from ordercast.verify.kernels.acyclic import ranks, rises
from ordercast.verify.tasks import plan, run_task
from tests.support.findings import case

if TYPE_CHECKING:
    from pathlib import Path


def test_saved_columns_come_back_as_they_were_and_are_judged_the_same(tmp_path: Path) -> None:
    for seed in range(12):
        drawn = case(seed)
        assert drawn is not None
        columns = prepare(drawn.trace, drawn.asked)
        columns.save(tmp_path / str(seed))
        mapped = open_columns(tmp_path / str(seed))
        assert mapped.about == columns.about
        for field in fields(Arrays):
            before, after = getattr(columns.arrays, field.name), getattr(mapped.arrays, field.name)
            assert before.dtype == after.dtype
            assert np.array_equal(before, after)
        found = [conclude(c, [run_task(c, task, cap=5) for task in plan(c)]) for c in (columns, mapped)]
        assert found[0] == found[1]


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="prepared columns cannot be read"):
        open_columns(tmp_path)


def test_the_verdict_does_not_depend_on_the_number_of_tasks() -> None:
    for seed in range(40):
        drawn = case(seed)
        if drawn is None:
            continue
        verdicts = [judge_trace(drawn.trace, witnesses=2, block=block) for block in (1, 2, 3, 128)]
        assert verdicts.count(verdicts[0]) == len(verdicts), f"seed {seed}"


def queues(*parts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    off = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    return np.concatenate([*parts, []]).astype(np.int32), off


def test_an_empty_queue_does_not_hold_back_what_it_is_owed() -> None:
    owed, owed_off = queues([0], [])
    assert sorted(ranks(*queues([], [0, 1]), 2, owed_off, owed)) == [0, 1]


def test_what_a_queue_is_owed_ranks_after_all_that_it_holds() -> None:
    owed, owed_off = queues([0], [])
    assert ranks(*queues([1], [0]), 2, owed_off, owed).tolist() == [1, 0]
    owed, owed_off = queues([0], [1])
    assert ranks(*queues([1], [0]), 2, owed_off, owed).tolist() == [-1, -1]


def test_a_certificate_must_rise_along_every_queue() -> None:
    queue = queues([0, 1], [1, 2])
    assert rises(*queue, np.array([0, 1, 2], np.int32))
    assert not rises(*queue, np.array([0, 1, 1], np.int32))
    assert not rises(*queue, np.array([0, 2, 1], np.int32))
    assert not rises(*queue, np.array([-1, 1, 2], np.int32))
