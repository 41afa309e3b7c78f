"""The judge whose rows are nowhere together says what the judge in one process says: verdicts, counts and stories.

Every stage runs here, over pieces of three rows in another order; `make engines` compares thousands of traces.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.trace.store import Manifest, TraceError
from ordercast.trace.synthetic import TraceShape, write_synthetic
from ordercast.verify.asked import JudgeOptions
from ordercast.verify.distributed import part
from ordercast.verify.distributed.concerning import Share, share_of
from ordercast.verify.distributed.order import AboutOrder
from ordercast.verify.distributed.setup import TaskCut, part_bytes
from ordercast.verify.distributed.stretches import OrderPiece, OrderPieces
from ordercast.verify.judge import judge_trace
from ordercast.verify.load import load
from ordercast.verify.spark.distributed import problem_in
from ordercast.verify.spark.events import COLUMN_TYPES
from ordercast.verify.verdict import CHECKS
from tests.support.engines import both, traced
from tests.support.flow import InProcess, judge_apart

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


@pytest.mark.parametrize("messages", [1_000, 100_000, 4_000_000])
def test_a_task_that_would_not_fit_is_cut_finer(messages: int) -> None:
    """What a task needs for its rows and for the messages they are about is bounded; all cores get something to do."""
    for task_mb in (256, 512, 4096):
        bound = task_mb << 20
        cut = TaskCut.for_size(100_000_000, 1000, messages, cores=2, task_bytes=bound)
        assert cut.parts < 1000  # Logs are not cut.
        assert part_bytes(100_000_000, messages, cut.parts, cut.stretch_bytes) <= bound
        assert cut.buckets * bound >= 100_000_000 * 64
    assert TaskCut.for_size(1_000, 1000, messages, cores=2, task_bytes=512 << 20).parts == 2


class Watching(InProcess):
    """Keeps what is sent to every part, and puts rows through the first stages a few thousand at a time."""

    rows_a_piece = 5000

    def __init__(self) -> None:
        self.everywhere: list[pa.Table] = []

    def beside(self, frame: pa.Table, by: str, everywhere: pa.Table, *stage: Any, **more: Any) -> pa.Table:
        self.everywhere.append(everywhere)
        return super().beside(frame, by, everywhere, *stage, **more)


def test_the_messages_side_is_cut_into_stretches_that_fit_beside_a_task(tmp_path: Path) -> None:
    """Of 3,000 messages, with ORDERCAST_TASK_MB=1; nobody gets more than an eighth of that at once."""
    wrong = (("causal", 1), ("lost", 1), ("duplicate", 1), ("invented", 1))
    (trace,) = load(write_synthetic(tmp_path / "run", TraceShape(10, 10, 30_000, violations=wrong)))
    cut = TaskCut.for_size(trace.table.num_rows, 10, 3000, cores=1, task_bytes=1 << 20)
    flow = Watching()
    apart = judge_apart(trace, JudgeOptions(), cut, flow=flow)

    assert apart == judge_trace(trace)
    assert apart.exit_code() == 1
    pieces = OrderPieces(flow.everywhere[0])
    about = pieces.read(OrderPiece.ABOUT, 0, AboutOrder)[0]
    assert len(about.bounds) - 1 == sum(1 for stretch in range(3000) if (OrderPiece.FACTS, stretch) in pieces) >= 3
    assert (cut.parts, cut.stretch_bytes) == (5, 1 << 17)
    assert part_bytes(trace.table.num_rows, 3000, cut.parts, cut.stretch_bytes) <= 1 << 20
    for stretch in range(len(about.bounds) - 1):
        arrays = [pieces.read(what, stretch)[1] for what in (OrderPiece.FACTS, OrderPiece.CAUSAL)]
        assert 0 < sum(array.nbytes for one in arrays for array in one.values()) <= cut.stretch_bytes


def test_a_part_takes_what_concerns_its_receivers_and_no_more() -> None:
    """Two groups that have nothing in common: who is judged in one task has no facts about the other's messages."""
    groups = {"t": ["a", "b"], "u": ["x", "y"]}
    rows = [
        row(who, seq, "publish", f"{topic}{seq}", topic=topic) for topic, (who, _) in groups.items() for seq in range(9)
    ]
    rows += [row(who, seq, "deliver", f"{topic}{seq}") for topic, (_, who) in groups.items() for seq in range(9)]
    about = Manifest(run_id="r", protocol="p", guarantee="causal", nodes=["a", "b", "x", "y"], groups=groups)
    kept: list[Share] = []
    cut = TaskCut(2, 2, 1, stretch_bytes=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "share_of", lambda *given: kept.append(share_of(*given)) or kept[-1])
        apart = judge_apart(traced(rows, about), JudgeOptions(), cut)
    assert apart == judge_trace(traced(rows, about))
    numbers = [set(share.numbers.messages.tolist()) for share in kept]
    assert [len(mine) for mine in numbers] == [9, 9]
    assert set.union(*numbers) == set(range(18))


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
