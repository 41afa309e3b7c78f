"""Tasks do not depend on how they are cut, and the certificate's checker is strict."""

from __future__ import annotations

import numpy as np

from ordercast.verify.judge import judge_trace
from ordercast.verify.kernels.acyclic import ranks, rises
from tests.support.findings import case


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
