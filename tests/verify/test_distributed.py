"""The judge whose rows are nowhere together says what the judge in one process says: verdicts, counts and stories.

Every stage runs here, over pieces of three rows in another order; `make engines` compares thousands of traces.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ordercast.trace.store import TraceError
from ordercast.verify.asked import JudgeOptions
from ordercast.verify.distributed.setup import TaskCut
from ordercast.verify.judge import judge_trace
from ordercast.verify.spark.distributed import problem_in
from ordercast.verify.spark.events import COLUMN_TYPES
from ordercast.verify.verdict import CHECKS
from tests.support.engines import both, traced
from tests.support.flow import judge_apart

TRACES = 200


def test_both_engines_say_the_same_of_random_traces() -> None:
    failed: Counter[str] = Counter()
    compared = 0
    for seed in range(TRACES):
        found = both(seed)
        if found is not None:
            assert found[1] == found[0], f"seed {seed}"
            compared += 1
            failed.update(result.check for result in found[0].results if result.verdict == "fail")
    assert compared >= TRACES // 2
    assert {*failed} >= {*CHECKS} - {"genuine"}, failed  # Not vacuous: all of them failed somewhere.


def row(node: str, seq: int, kind: str, msg: str | None = "m", **more: Any) -> dict[str, Any]:
    return {"run": "r", "node": node, "seq": seq, "kind": kind, "msg": msg, **more}


def test_a_seq_that_a_node_has_twice_is_named() -> None:
    rows = [row("a", 0, "publish", topic="t"), row("b", 0, "deliver"), row("b", 0, "deliver")]
    with pytest.raises(TraceError, match="random: node b has seq 0 twice"):
        judge_apart(traced(rows), JudgeOptions(), TaskCut(2, 2, 1))


def test_a_node_whose_history_has_holes_leaves_all_but_integrity_undecided() -> None:
    rows = [row("a", 0, "publish", topic="t"), row("b", 700, "deliver"), row("b", 1, "deliver", "n")]
    verdict = judge_apart(traced(rows), JudgeOptions(), TaskCut(2, 2, 1))
    assert verdict == judge_trace(traced(rows))
    assert "node b lacks 699 (the first is seq 0)" in str(verdict.facts["holes"])


def test_of_cycles_in_many_topics_that_with_the_fewest_nodes_is_told_as_in_one_place() -> None:
    """The topics are judged in different blocks: the longer cycle has the first message, the shorter one is told."""
    orders = {"t": ["ab", "bc", "ca"], "u": ["xy", "yx", ""], "v": ["pq", "qp", ""]}
    topic_of = {message: topic for topic, lines in orders.items() for message in "".join(lines)}
    rows = [row("w", seq, "publish", message, topic=topic_of[message]) for seq, message in enumerate("abcpqxy")]
    for number, lines in enumerate(zip(*orders.values(), strict=True)):
        heard = enumerate(message for line in lines for message in line)
        rows += [row(f"n{number}", seq, "deliver", message) for seq, message in heard]
    asked = {"checks": ["one-order"]}
    apart = [judge_apart(traced(rows), JudgeOptions(**asked), TaskCut(2, 2, blocks)) for blocks in (1, 2, 3)]
    assert apart == [judge_trace(traced(rows), **asked)] * 3
    (result,) = apart[0].results
    assert (result.violations, [sorted(story.messages) for story in result.witnesses]) == (7, [["p", "q"]])


def test_a_task_too_many_is_cut_finer() -> None:
    """Memory a task needs for its rows is bounded by the cut, and all cores get something to do."""
    small, large = (TaskCut.for_size(rows, 1000, cores=2, task_bytes=512 << 20) for rows in (1_000, 100_000_000))
    assert small == TaskCut(2, 2, 2)
    assert large.parts * (512 << 20) >= 100_000_000 * 64
    assert large.buckets >= 12


def test_what_a_task_says_of_the_trace_is_what_the_user_reads() -> None:
    failed = "Job aborted: Lost task 0.0 in stage 3.0 (TID 9) (10.0.0.7 executor 1): {}\nDriver stacktrace:"
    told = failed.format("PythonException: File x\nordercast.trace.store.TraceError: runs/r: node b has seq 0 twice")
    assert problem_in(told) == "runs/r: node b has seq 0 twice"
    unread = failed.format(
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file hdfs://h/r/part-0.parquet. "
    )
    assert problem_in(unread) == (
        "hdfs://h/r/part-0.parquet: cannot be read on 10.0.0.7: damaged, or not in the format of a trace"
    )
    assert problem_in(failed.format("java.lang.OutOfMemoryError: Java heap space")) is None


def test_columns_of_files_that_others_wrote_are_read_in_whole_types() -> None:
    """Half a type (`map<string`) is one that Spark cannot read: JSON and CSV would be refused."""
    assert (COLUMN_TYPES["info"], COLUMN_TYPES["keys"]) == ("map<string, string>", "array<string>")
    assert all(type_.count("<") == type_.count(">") for type_ in COLUMN_TYPES.values())
