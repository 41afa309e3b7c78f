"""Pages of the studies whose results docs/results keeps, NAME-SCALE.parquet each: drawn when documentation is built.

A hook of mkdocs. A page is the report that `ordercast experiment run` writes, at studies/NAME-SCALE.html of the site.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ordercast.cli.studying import study_report
from ordercast.core.errors import UsageError
from ordercast.experiments import Study, lookup, run_study
from ordercast.report.study import render_study


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs once it knows the files of the documentation."""
    for results in sorted(Path(config.docs_dir, "results").glob("*.parquet")):
        files.append(File.generated(config, f"studies/{results.stem}.html", content=page_of(results)))
    return files


def page_of(results: Path) -> str:
    """The page about kept results; nothing is run for it."""
    name, scale = results.stem.rsplit("-", 1)
    study = lookup(name)
    seeds = seeds_kept(study, scale, results)
    with tempfile.TemporaryDirectory(prefix="ordercast-") as out:
        result = run_study(study, scale=scale, out=Path(out), seeds=seeds, spark=False, known=results)
        return render_study(study_report(result, seeds))


def seeds_kept(study: Study, scale: str, results: Path) -> int | None:
    """How many seeds of each point are there, of those that have so many; None: all."""
    kept = set(pq.read_table(results, columns=["id"])["id"].to_pylist())
    every = study.configurations(scale)
    for seeds in (None, *range(len(every), 0, -1)):
        if {one.id for one in study.configurations(scale, seeds)} == kept:
            return seeds
    raise UsageError(f"{results}: these are not the configurations of {study.name} as it is now; run it again")
