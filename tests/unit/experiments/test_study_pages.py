"""The documentation draws the pages of studies from the results that it keeps."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from ordercast.core.errors import UsageError
from ordercast.experiments import lookup

ROOT = Path(__file__).parents[3]
KEPT = sorted((ROOT / "docs" / "results").glob("*.parquet"))


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("study_pages", ROOT / "scripts" / "study_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smallest() -> Path:
    return min(KEPT, key=lambda results: results.stat().st_size)


@pytest.mark.parametrize("results", KEPT, ids=lambda results: results.stem)
def test_kept_results_are_those_of_the_study_as_it_is_now(pages: ModuleType, results: Path) -> None:
    name, scale = results.stem.rsplit("-", 1)
    pages.seeds_kept(lookup(name), scale, results)
    text = (ROOT / "docs" / "experiments.md").read_text()
    assert f"(studies/{results.stem}.html)" in text, "nobody finds the page"


def test_a_page_has_the_claims_and_figures_and_says_how_to_repeat_them(pages: ModuleType) -> None:
    results = smallest()
    name, _ = results.stem.rsplit("-", 1)
    page = pages.page_of(results)
    assert f"ordercast experiment run {name} --scale paper" in page
    assert "<img" in page
    assert "Claims that hold" in page


@pytest.mark.parametrize("lacks", ["one configuration", "all of another version"])
def test_results_that_are_not_whole_or_of_another_version_are_refused(
    pages: ModuleType, tmp_path: Path, lacks: str
) -> None:
    table = pq.read_table(smallest())
    wrong = tmp_path / smallest().name
    ids = table["id"].to_pylist()
    if lacks == "one configuration":
        table = table.slice(1)
    else:
        table = table.set_column(table.column_names.index("id"), "id", [[one[::-1] for one in ids]])
    pq.write_table(table, wrong)
    with pytest.raises(UsageError, match="run it again"):
        pages.page_of(wrong)
