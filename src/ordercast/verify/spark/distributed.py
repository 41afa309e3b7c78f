"""The distributed judge on Spark: rows stay where they are, and this process sees counts and witnesses."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from ordercast.trace.schema import INFO_DIGEST, KINDS
from ordercast.trace.store import TraceError
from ordercast.verify.asked import JudgeOptions
from ordercast.verify.distributed.engine import judge
from ordercast.verify.distributed.files import (
    MOST_RARE,
    hash_of,
    look_at_files,
    look_from,
    plain_path,
    scan_files,
)
from ordercast.verify.distributed.look import NodeLook, setup_of
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, LISTS, scan
from ordercast.verify.distributed.setup import RARE, TaskCut
from ordercast.verify.distributed.wire import values
from ordercast.verify.judge import WITNESSES
from ordercast.verify.load import LoadedTrace
from ordercast.verify.spark.flow import SparkFlow
from ordercast.verify.spark.places import open_places, runs_of
from ordercast.verify.spark.progress import run_action
from ordercast.verify.verdict import DISTRIBUTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from ordercast.verify.distributed.engine import Scanning
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.spark.places import TracePlace
    from ordercast.verify.verdict import Verdict

TASK_MEMORY = "ORDERCAST_TASK_MB"
"""The environment variable that says how many megabytes the rows of one task may take."""
_TASK_MB = 512


def verify_places(
    spark: SparkSession, path: str, *, witnesses: int = WITNESSES, cut: TaskCut | None = None, **asked: Any
) -> list[Verdict]:
    """A verdict for every run at `path`, wherever Spark can read: the same as the judge in one process gives.

    `cut` says into how many tasks; by default into so many that the rows of none take more than ORDERCAST_TASK_MB.
    """
    verdicts = []
    for place in open_places(spark, path):
        for run, one in runs_of(place):
            verdicts.append(_judge(spark, one, run, JudgeOptions(**asked), witnesses, cut))
    return verdicts


def _judge(
    spark: SparkSession,
    place: TracePlace,
    run: str,
    asked: JudgeOptions,
    witnesses: int,
    cut: TaskCut | None,
) -> Verdict:
    trace = LoadedTrace(place.path, run, place.manifest, None)  # type: ignore[arg-type]  # Its rows are elsewhere.
    flow = SparkFlow(spark, f"judging {run}")
    try:
        with naming_what_is_wrong(place.path):
            verdict = _judged(spark, place, flow, trace, asked, witnesses, cut)
    finally:
        flow.close()
    return msgspec.structs.replace(verdict, engine=DISTRIBUTED)


def _judged(
    spark: SparkSession,
    place: TracePlace,
    flow: SparkFlow,
    trace: LoadedTrace,
    asked: JudgeOptions,
    witnesses: int,
    cut: TaskCut | None,
) -> Verdict:
    seen = _seen_in_files(spark, place) or _seen_in_rows(spark, place.path, place.events)
    size = sum(row["rows"] for row in seen.looks)
    published = sum(row["publications"] for row in seen.looks)
    cut = cut or TaskCut.for_size(size, len(seen.looks), published, cores=cores_of(spark), task_bytes=task_bytes())
    nodes = [NodeLook(row["node"], row["hash"], row["rows"], row["last"] + 1, row["until"]) for row in seen.looks]
    setup = setup_of(trace, asked, nodes, seen.rare, seen.destinations, cut, witnesses)
    counts = {"events": size, "deliveries": sum(row["deliveries"] for row in seen.looks)}
    return judge(flow, seen.rows, setup, counts, partial(_names, place.events, setup), seen.scanning)


@contextmanager
def naming_what_is_wrong(path: str) -> Iterator[None]:
    """Turn Spark's failure over a trace into a TraceError that says what is wrong with it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        problem = problem_in(str(error))
        if problem is None:
            raise
        told = plain_path(problem)
        raise TraceError(told if told.startswith(plain_path(path)) else f"{path}: {told}") from None


class _Seen(NamedTuple):
    """The outcome of a first look at a run, and how its rows are read."""

    looks: list[Any]
    rare: list[dict[str, Any]]
    destinations: set[str]
    rows: DataFrame
    scanning: Scanning


def _seen_in_rows(spark: SparkSession, path: str, events: DataFrame) -> _Seen:
    looks = _look(spark, path, events)
    return _Seen(looks, _rare(events, path), _destinations(events), _scanned(events), scan)


def _seen_in_files(spark: SparkSession, place: TracePlace) -> _Seen | None:
    """The same from the bytes of files; None where that does not work: then the way by rows says what is wrong."""
    if place.files is None:
        return None
    looking = place.files.mapInArrow(look_at_files, "data binary")
    try:
        table: pa.Table = run_action(spark, "reading", looking.toArrow)
    except (PySparkException, Py4JError):
        return None
    found = look_from(values(table, "data"))
    names = sorted(found.nodes)
    hashes = hash_of(pa.array(names, pa.string())).tolist()
    looks = [
        {"node": name, "hash": hash_, **msgspec.structs.asdict(found.nodes[name])}
        for name, hash_ in zip(names, hashes, strict=True)
    ]
    return None if found.wrong else _Seen(looks, found.rare, found.destinations, place.files, scan_files)


def problem_in(said: str) -> str | None:
    """The fault of the trace, if that is what made Spark fail: a task said so, or could not read a file."""
    told = re.search(r"TraceError: (.+)", said)
    if told is not None:
        return told[1].strip()
    file = re.search(r"while reading file ([^\s`'\"]+?)\.?(?:\s|$)", said)
    host = re.search(r"\(TID \d+\) \(([^\s)]+)", said)
    if file is None:
        return None
    return f"{file[1]}: cannot be read{f' on {host[1]}' if host else ''}: damaged, or not in the format of a trace"


def _look(spark: SparkSession, path: str, events: DataFrame) -> list[Row]:
    """One row for each node, and one line about the first thing that is wrong with any."""
    kind, seq = sql.col("kind"), sql.col("seq")
    tagged = kind.isin("publish", "deliver")
    looks = events.groupBy("node").agg(
        sql.xxhash64("node").alias("hash"),
        sql.count("*").alias("rows"),
        sql.coalesce(sql.max(seq), sql.lit(-1)).alias("last"),
        sql.min(seq).alias("first"),
        sql.coalesce(sql.max(sql.when(kind == "publish", seq + 1)), sql.lit(0)).alias("until"),
        sql.count_if(kind == "deliver").alias("deliveries"),
        sql.count_if(kind == "publish").alias("publications"),
        sql.count_if(seq.isNull()).alias("without seq"),
        sql.count_if(kind.isNull()).alias("without kind"),
        sql.max(sql.when(~kind.isin(*KINDS), kind)).alias("unknown kind"),
        sql.min(sql.when(tagged & sql.col("msg").isNull(), seq)).alias("without msg"),
    )
    found = run_action(spark, "reading", looks.collect)
    for row in sorted(found, key=lambda row: row["node"] or ""):
        _expect_whole(path, row)
    return found


def _expect_whole(path: str, row: Row) -> None:
    if row["node"] is None:
        raise TraceError(f"{path}: {row['rows']:,} rows have no node")
    for name in ("seq", "kind"):
        if row[f"without {name}"]:
            raise TraceError(f"{path}: {row[f'without {name}']:,} rows of node {row['node']} have no {name}")
    if row["unknown kind"] is not None:
        raise TraceError(f"{path}: node {row['node']}: unknown kind {row['unknown kind']!r}")
    if row["first"] < 0:
        raise TraceError(f"{path}: node {row['node']}: seq {row['first']} is out of range")
    if row["without msg"] is not None:
        raise TraceError(f"{path}: node {row['node']}, seq {row['without msg']}: publish or deliver without msg")


def _rare(events: DataFrame, path: str) -> list[dict[str, Any]]:
    digests = sql.col("info").isNotNull() & sql.col("info").getItem(INFO_DIGEST).isNotNull()
    rows = events.where(sql.col("kind").isin(*RARE) | digests)
    columns = rows.select("node", "seq", "kind", "time_ns", "topic", "info").limit(MOST_RARE + 1).toArrow()
    if columns.num_rows > MOST_RARE:
        raise TraceError(f"{path}: more than {MOST_RARE:,} rows about members, crashes and digests")
    found: list[dict[str, Any]] = columns.to_pylist()
    return found


def _destinations(events: DataFrame) -> set[str]:
    named = events.where("kind = 'publish' and dst is not null").select(sql.explode("dst").alias("name")).distinct()
    return {row["name"] for row in named.collect() if row["name"] is not None}


def _scanned(events: DataFrame) -> DataFrame:
    """The columns that the first stage reads: numbers for names, and words of publications only."""
    published = sql.col("kind") == "publish"
    codes = sql.array(*(sql.lit(kind) for kind in KINDS))
    return events.select(
        sql.xxhash64("node").alias("node"),
        "seq",
        (sql.array_position(codes, sql.col("kind")) - 1).cast("tinyint").alias("kind"),
        sql.when(sql.col("msg").isNotNull(), sql.xxhash64("msg")).alias("message"),
        "time_ns",
        *(sql.when(published, _as_text(name)).alias(name) for name in ABOUT_PUBLICATION),
    )


def _as_text(name: str) -> Column:
    """Lists as JSON: Spark weighs a batch after every row, and for a column of lists counts all its rows each time."""
    return sql.to_json(name) if name in LISTS else sql.col(name)


def _names(events: DataFrame, setup: Setup, places: list[int]) -> list[str]:
    """The messages of these rows."""
    wanted = [(setup.nodes.names[place >> 32], place & 0xFFFFFFFF) for place in places]
    clause = sql.lit(False)
    for node, seq in wanted:
        clause = clause | ((sql.col("node") == node) & (sql.col("seq") == seq))
    found = {(row["node"], row["seq"]): row["msg"] for row in events.where(clause).collect()}
    return [found[one] for one in wanted]


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once, as far as this side knows."""
    try:
        return max(int(spark.sparkContext.defaultParallelism), 1)
    except (AttributeError, NotImplementedError):
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)  # Connect does not tell.


def task_bytes() -> int:
    given = os.environ.get(TASK_MEMORY, str(_TASK_MB))
    if not given.isdecimal() or int(given) < 1:
        raise TraceError(f"{TASK_MEMORY}={given}: not a number of megabytes")
    return int(given) << 20
