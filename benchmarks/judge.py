"""How fast the judge is: ten million deliveries in causal order, one core, against the plainest loop that could do it.

    python benchmarks/judge.py [--nodes 100] [--messages 100000] [--spark]

Prints what it ran: the causal kernel alone, the whole judge from Parquet to verdict, and, with --spark, the same as
Spark tasks. The reference is the textbook form of the kernel, compiled the same way and run on the same columns: every
row copied, no row taken over. The target is 0.7 of its rate.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import njit

from ordercast.trace.store import Manifest
from ordercast.trace.writer import EVENT_SCHEMA, RunWriter
from ordercast.verify.asked import JudgeOptions
from ordercast.verify.build import prepare
from ordercast.verify.judge import judge_path
from ordercast.verify.kernels import causal, happened
from ordercast.verify.load import load
from ordercast.verify.tasks import BLOCK, plan, run_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from ordercast.verify.columns import Columns

TARGET = 0.7
REPEATS = 7


@njit(cache=True)
def broadcast(nodes: int, messages: int, seed: int) -> tuple[Any, Any]:
    """Logs of nodes that publish at random; they deliver their own messages at once, others' in order, a bit late."""
    np.random.seed(seed)
    logs = np.empty((nodes, 2 * messages), np.int32)
    length = np.zeros(nodes, np.int64)
    seen = np.zeros(nodes, np.int64)
    publisher = np.empty(messages, np.int32)
    for m in range(messages + nodes):
        q = np.random.randint(nodes) if m < messages else m - messages
        until = max(seen[q], m - np.random.randint(200)) if m < messages else messages
        for x in range(seen[q], until):
            if publisher[x] != q:
                logs[q, length[q]] = x
                length[q] += 1
        seen[q] = until
        if m < messages:
            publisher[m] = q
            logs[q, length[q]] = ~m
            logs[q, length[q] + 1] = m
            length[q] += 2
    return logs, length


@njit(cache=True)
def reference(
    width: int, start: Any, column: Any, position: Any, prev: Any, edge_off: Any, edges: Any, refs: Any, live: int
) -> int:
    """The loop as one would first write it: gather the rows of all predecessors, compare, fold, keep while needed."""
    rows = np.full((live + 1, width), -1, np.int32)
    free = np.arange(live + 1)
    frees = live + 1
    slot = np.full(prev.size, -1, np.int64)
    left = refs.copy()
    past = np.empty(width, np.int32)
    found = 0
    for m in range(prev.size):
        past[:] = -1
        for i in range(edge_off[m] - 1, edge_off[m + 1]):
            e = prev[m] if i < edge_off[m] else edges[i]
            if e < 0:
                continue
            row = slot[e]
            for c in range(width):
                past[c] = max(past[c], rows[row, c])
            left[e] -= 1
            if left[e] == 0:
                free[frees] = row
                frees += 1
        for i in range(start[m], start[m + 1]):
            found += past[column[i]] > position[i]
            past[column[i]] = max(past[column[i]], position[i])
        if refs[m] > 0:
            frees -= 1
            slot[m] = free[frees]
            rows[slot[m]] = past
    return found


def write_run(out: Path, nodes: int, messages: int) -> int:
    """The logs as a run directory, in chunks of Arrow; returns the number of deliveries."""
    logs, length = broadcast(nodes, messages, 1)
    members = [f"n{n:03d}" for n in range(nodes)]
    writer = RunWriter(out)
    manifest = Manifest(
        run_id="benchmark", protocol="broadcast", guarantee="causal", nodes=members, groups={"t": members}, drained=True
    )
    names = pa.array([f"m{m}" for m in range(messages)])
    for n, member in enumerate(members):
        writer.write_table(_rows(member, logs[n, : length[n]], names))
    writer.finish(manifest)
    return sum(int((logs[n, : length[n]] >= 0).sum()) for n in range(nodes))


def _rows(member: str, log: Any, names: Any) -> pa.Table:
    size = log.size
    publishes = log < 0
    kind = pa.DictionaryArray.from_arrays(pa.array(publishes.astype(np.int32)), pa.array(["deliver", "publish"]))
    topic = pa.array(["t"] * size, mask=~publishes)
    known: dict[str, Any] = {
        "run": pa.array(["benchmark"] * size),
        "node": pa.array([member] * size),
        "seq": pa.array(np.arange(size)),
        "kind": kind.cast(pa.string()),
        "time_ns": pa.array(np.arange(size)),
        "msg": names.take(pa.array(np.where(publishes, ~log, log))),
        "topic": topic,
    }
    columns = [known.get(field.name, pa.nulls(size, field.type)) for field in EVENT_SCHEMA]
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


def best(action: Callable[[], object]) -> float:
    """Least CPU seconds of a few runs; the first one compiles and is not counted."""
    action()
    times = []
    for _ in range(REPEATS):
        begun = time.process_time()
        action()
        times.append(time.process_time() - begun)
    return min(times)


def kernels(columns: Columns) -> tuple[float, float]:
    """CPU seconds of our kernel and of the reference, gathering of positions included in both."""
    arrays = columns.arrays
    owed = arrays.owed()
    held = arrays.held("causal")
    links = links_of(columns)

    def plainest() -> None:
        for first in range(0, arrays.receivers, BLOCK):
            last = min(first + BLOCK, arrays.receivers)
            *where, _ = causal.positions(first, last, arrays.ev, arrays.off, *owed, held, True)
            assert reference(last - first, *where, *links) == 0

    tasks = [task for task in plan(columns) if task.check == "causal"]
    return best(lambda: [run_task(columns, task, cap=5) for task in tasks]), best(plainest)


def links_of(columns: Columns) -> tuple[Any, ...]:
    """Happened-before as messages that name each other, how many read each, and how many are needed at once."""
    arrays = columns.arrays
    chain, at, prev, begin = happened.publications(arrays.log, arrays.log_off, arrays.messages)
    edge_off, edges = happened.prune(arrays.log, chain, at, begin, arrays.log_off.size - 1)
    readers = np.bincount(np.concatenate((prev[prev >= 0], edges)), minlength=prev.size).astype(np.int32)
    return prev, edge_off, edges, readers, columns.past.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--spark", action="store_true", help="also as Spark tasks on local[2]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        deliveries = write_run(run, options.nodes, options.messages)
        size = sum(file.stat().st_size for file in run.rglob("*.parquet"))
        print(f"{options.messages:,} messages broadcast among {options.nodes} nodes: {deliveries:,} deliveries")
        columns = prepare(next(load(run)), JudgeOptions())
        edges, rows = columns.past.stretches[0].edges.size, columns.past.rows
        print(f"{size / 1e6:.0f} MB of Parquet, {edges:,} edges after pruning, {rows:,} live rows")
        ours, plain = kernels(columns)
        del columns
        million = deliveries / 1e6
        print(f"causal kernel       {million / ours:7.1f} M deliveries/s on one core ({ours:.2f} s CPU)")
        print(f"reference loop      {million / plain:7.1f} M deliveries/s on one core ({plain:.2f} s CPU)")
        print(f"ratio               {plain / ours:7.2f} (target {TARGET})")
        begun = time.perf_counter(), time.process_time()
        verdict = judge_path(run)[0]
        wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
        assert verdict.exit_code() == 0, verdict.results
        print(
            f"judge, end to end   {million / wall:7.1f} M deliveries/s ({wall:.2f} s wall, {cpu:.2f} s CPU, all checks)"
        )
        if options.spark:
            on_spark(run, million)
        print(f"peak memory         {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:7.0f} MiB")


def on_spark(run: Path, million: float) -> None:
    from ordercast.verify.spark.jobs import verify_runs
    from ordercast.verify.spark.session import session

    spark = session("local[2]")
    verify_runs(spark, [run], checks=["fifo"])  # starts the Python workers
    begun = time.perf_counter()
    verify_runs(spark, [run])
    wall = time.perf_counter() - begun
    spark.stop()
    print(f"judge, Spark tasks  {million / wall:7.1f} M deliveries/s ({wall:.2f} s wall on local[2], all checks)")


if __name__ == "__main__":
    main()
