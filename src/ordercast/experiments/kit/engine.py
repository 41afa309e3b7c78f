"""Runs a study: sweeps what is not finished yet, then judges and draws all of it."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.core.errors import InvariantError
from ordercast.experiments.kit.parts import (
    StudyPart,
    StudyParts,
    encode,
    naming_unwritable,
    replacing_directory,
    write_atomically,
)
from ordercast.experiments.kit.study import Picture, Row, SourceClaim, Study, SweepPoint, Value

if TYPE_CHECKING:
    from ordercast.experiments.kit.sweep import SweepOutcome

RESULTS = "results.parquet"
CLAIMS = "claims.json"
FAILED = "failed.json"
FIGURES = "figures"

Progress = Callable[[int, int], None]
"""Told how many configurations are done, of how many."""


class Failure(msgspec.Struct, frozen=True):
    """A configuration without a result, and why in one line."""

    id: str
    parameters: Row
    error: str
    trace: str = ""


class StudyResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a study, and where it lies."""

    study: Study
    scale: str
    out: Path
    table: pa.Table
    """One row per finished configuration, in the order of their ids."""
    claims: list[SourceClaim]
    figures: list[Picture]
    runs: str
    """How many runs there were, and how many different ones are behind each point."""
    failed: list[Failure]
    executed: int
    """Configurations that ran now, failed ones included; the others were finished before."""
    ran_on: str = ""
    """Where they ran, if not on Spark."""


def run_study(
    study: Study,
    *,
    scale: str,
    out: Path,
    master: str | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
    tasks: int | None = None,
    seeds: int | None = None,
    spark: bool = True,
    known: Path | None = None,
) -> StudyResult:
    """Run `study` and leave its results in `out`; with so many seeds of each point, if not with all.

    Configurations that an earlier run finished in `out` are not run again, unless `fresh`; failed ones are. Nor is what
    `known`, the results.parquet of a run elsewhere, has already. The results depend neither on `tasks`, how
    many run at a time (default: what there is room for), nor on the order they end in, nor on `spark`: without it,
    processes of this machine do the work.
    """
    configurations = study.configurations(scale, seeds)
    parts = StudyParts(out)
    if fresh:
        parts.forget()
    if known is not None:
        parts.take_over(known, configurations)
    finished = parts.finished(configurations)
    missing = [configuration for configuration in configurations if configuration.id not in finished]
    if progress is not None:
        progress(len(finished), len(configurations))
    failed: list[Failure] = []
    ran_on = ""
    if missing:
        sweep, ran_on = _sweep(study, missing, master=master, tasks=tasks, spark=spark)
        failed = _collect(sweep, missing, parts=parts, finished=finished, progress=progress)
    return _conclude(study, scale, out, finished=finished, failed=failed, executed=len(missing), ran_on=ran_on)


def _sweep(
    study: Study, missing: Sequence[SweepPoint], *, master: str | None, tasks: int | None, spark: bool
) -> tuple[Generator[SweepOutcome], str]:
    """The outcomes of what is missing, as they arrive; and where it runs, if not on Spark."""
    rows = [configuration.parameters for configuration in missing]
    weights = [study.weigh(row) for row in rows]
    if spark:
        from ordercast.experiments.kit.sweep import Sweep, slots
        from ordercast.verify.spark.session import session

        started = session(master, warm=True)
        at_once = tasks if tasks is not None else slots(started)
        return Sweep(started, study.run, rows, weights=weights, at_once=at_once).outcomes(), ""
    from ordercast.experiments.kit.processes import ProcessSweep, cores

    at_once = min(tasks if tasks is not None else cores(), len(rows))
    told = f"without Spark, in {at_once} process{'es' if at_once > 1 else ''} of this machine"
    return ProcessSweep(study.run, rows, weights=weights, at_once=at_once).outcomes(), told


def _collect(
    sweep: Generator[SweepOutcome],
    missing: Sequence[SweepPoint],
    *,
    parts: StudyParts,
    finished: dict[str, StudyPart],
    progress: Progress | None,
) -> list[Failure]:
    """Keep each result in `parts` and `finished` when it arrives. Returns what failed."""
    before = len(finished)
    failed: list[Failure] = []
    with closing(sweep) as outcomes:
        for outcome in outcomes:
            id_, parameters = missing[outcome.position].id, missing[outcome.position].parameters
            if outcome.result is None:
                failed.append(Failure(id_, parameters, outcome.error, outcome.trace))
            else:
                part = StudyPart(id=id_, parameters=parameters, result=outcome.result, seconds=outcome.seconds)
                parts.keep(part)
                finished[id_] = part
            if progress is not None:
                progress(len(finished) + len(failed), before + len(missing))
    return sorted(failed, key=lambda failure: failure.id)


def _conclude(
    study: Study,
    scale: str,
    out: Path,
    *,
    finished: dict[str, StudyPart],
    failed: list[Failure],
    executed: int,
    ran_on: str = "",
) -> StudyResult:
    """Judge and draw what is finished, and write everything down."""
    parts = [finished[id_] for id_ in sorted(finished)]
    table, different = results_table(parts), distinct(parts)
    observed = results_table(different)
    claims = study.claims(observed) if observed.num_rows else []
    runs = _told(parts, different)
    with naming_unwritable(out):
        _write_table(out / RESULTS, table)
        write_atomically(out / CLAIMS, encode(_verdict(study, scale, table, claims, failed)))
        if failed:
            write_atomically(out / FAILED, encode(failed))
        else:
            (out / FAILED).unlink(missing_ok=True)
        with replacing_directory(out / FIGURES) as directory:
            drawn = study.figures(observed, directory) if observed.num_rows else []
    return StudyResult(
        study=study,
        scale=scale,
        out=out,
        table=table,
        claims=claims,
        figures=[Picture(out / FIGURES / one.file.name, f"{one.caption} {runs}") for one in drawn],
        runs=runs,
        failed=failed,
        executed=executed,
        ran_on=ran_on,
    )


def distinct(parts: Sequence[StudyPart]) -> list[StudyPart]:
    """Without runs that came out as another one of their point did: the seed made no difference, so they are one."""
    found: dict[bytes, StudyPart] = {}
    for part in parts:
        found.setdefault(encode([_point(part), _measured(part)]), part)
    return list(found.values())


def _measured(part: StudyPart) -> list[tuple[str, Value]]:
    """A measurement that was not taken is missing here, or None where the part was taken over from a table."""
    return sorted((name, value) for name, value in part.result.items() if value is not None)


def _point(part: StudyPart) -> list[tuple[str, Value]]:
    """A configuration without its seed."""
    return sorted((name, value) for name, value in part.parameters.items() if name != "seed")


def _told(parts: Sequence[StudyPart], different: Sequence[StudyPart]) -> str:
    """`n = 3 runs a point.`, of how many points where they differ, and how many runs brought nothing new."""
    points = Counter(Counter(encode(_point(part)) for part in different).values())
    if not points:
        return "Nothing was measured."
    again = len(parts) - len(different)
    repeated = f" {again} runs came out as one with another seed did, and are not counted." if again else ""
    if len(points) == 1:
        return f"n = {_runs(*points)} a point.{repeated}"
    (fewest, places), *more = sorted(points.items())
    told = [f"{_runs(fewest)} at {places} point{'s' if places > 1 else ''}", *(f"{n} at {count}" for n, count in more)]
    return f"n = {', '.join(told)}.{repeated}"


def _runs(n: int) -> str:
    return f"{n} run{'s' if n > 1 else ''}"


def _verdict(
    study: Study, scale: str, table: pa.Table, claims: list[SourceClaim], failed: list[Failure]
) -> dict[str, str | int | list[SourceClaim]]:
    """The content of claims.json."""
    return {
        "study": study.name,
        "version": study.version,
        "scale": scale,
        "configurations": table.num_rows + len(failed),
        "failed": len(failed),
        "claims": claims,
    }


def results_table(parts: Sequence[StudyPart]) -> pa.Table:
    """Parameters and measurements side by side, one row per part; a measurement that a part lacks is null."""
    rows: list[Row] = []
    for part in parts:
        twice = part.parameters.keys() & part.result.keys() | {"id"} & (part.parameters.keys() | part.result.keys())
        if twice:
            raise InvariantError(f"a study uses the column {min(twice)!r} for two things")
        rows.append({"id": part.id, **part.parameters, **part.result})
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["id"]
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Value]) -> pa.Array[Any]:
    column: pa.Array[Any] = pa.array(cast("list[Any]", values))
    # Spark reads no Parquet column without a type; a measurement that nobody could take is a missing number.
    return column.cast(pa.float64()) if pa.types.is_null(column.type) else column


def _write_table(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())
