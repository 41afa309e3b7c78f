"""The page of a study: its claims, its figures inside, and what failed."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from ordercast.report.study import ResultTable, StudyReport, render_study, write_study_report
from ordercast.trace.store import TraceError
from tests.unit.report.test_page import Page

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def claim(name: str, holds: bool | None, *, of_source: bool = True) -> dict[str, object]:
    told = {"source": "[BSS91] 5.1", "statement": "headers < n", "measured": 4.0213}
    return {"id": name, "of_source": of_source, "holds": holds, **told}


def study(tmp_path: Path, **changes: object) -> StudyReport:
    figure = tmp_path / "header_bytes-by-nodes.png"
    figure.write_bytes(PIXEL)
    values = {
        "name": "vector-overhead",
        "source": "[PC18] Nédelec",
        "words": {"B": "bytes"},
        "runs": "2 configurations. n = 1 run a point.",
        "description": "How headers grow.\n\nNodes are swept.",
        "scale": "quick",
        "claims": [claim("C1", True)],
        "figures": [(figure, "Headers of a copy, by the number of nodes. n = 3 runs a point.")],
        "failed": [],
        "table": ResultTable(
            ["protocol", "nodes", "rate", "bytes"], 3, [["vector", 64, 1.0, 9], ["<b>", None, 1.0, None]]
        ),
        "command": "ordercast experiment run vector-overhead",
    }
    return StudyReport(**{**values, **changes})  # type: ignore[arg-type]


def test_a_study_whose_claims_hold_says_how_many(tmp_path: Path) -> None:
    page = Page(render_study(study(tmp_path)))
    assert "Claims that hold: 1 of 1 of the source" in page.text
    assert any("held" in str(paragraph.get("class")) for paragraph in page.all("p"))
    assert "ordercast experiment run vector-overhead" in page.text


def test_broken_and_undecided_claims_are_named(tmp_path: Path) -> None:
    claims = [claim("C1", True), claim("C2", False), claim("C3", None)]
    page = Page(render_study(study(tmp_path, claims=claims)))

    assert "Claims that hold: 1 of 3 of the source" in page.text
    assert "do not hold: C2" in page.text
    assert "undecided: C3" in page.text
    assert "✗ does not hold" in page.text


def test_failed_configurations_are_told_with_their_error(tmp_path: Path) -> None:
    page = Page(render_study(study(tmp_path, failed=[{"nodes": 64, "seed": 1, "error": "UsageError: <no>"}])))
    assert "nodes=64, seed=1 UsageError: <no>" in page.text
    assert any("undecided" in str(paragraph.get("class")) for paragraph in page.all("p"))


def test_figures_are_inside_the_page_with_words(tmp_path: Path) -> None:
    (image,) = Page(render_study(study(tmp_path))).all("img")
    assert image["alt"] == "Headers of a copy, by the number of nodes. n = 3 runs a point."
    assert str(image["src"]) == "data:image/png;base64," + base64.b64encode(PIXEL).decode()


def test_a_figure_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.svg: cannot be read: No such file"):
        write_study_report(tmp_path / "out.html", study(tmp_path, figures=[(tmp_path / "gone.svg", "Gone.")]))
    assert not (tmp_path / "out.html").exists()


def test_results_are_a_table_of_words(tmp_path: Path) -> None:
    write_study_report(tmp_path / "out.html", study(tmp_path))
    text = Page((tmp_path / "out.html").read_text()).text

    assert "vector 64 9" in text
    assert "<b> — —" in text
    assert "The same in every row: rate 1" in text


def test_claims_of_the_source_are_counted_apart_from_our_own(tmp_path: Path) -> None:
    claims = [claim("Q1", True), claim("ours", True, of_source=False), claim("ours-2", False, of_source=False)]
    text = Page(render_study(study(tmp_path, claims=claims))).text
    assert "Claims that hold: 1 of 1 of the source, 1 of 2 of our own" in text
    assert text.index("Claims of the source") < text.index("Q1") < text.index("Claims of our own")


def test_many_columns_are_divided_so_that_none_is_cut_off(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(25)]
    rows = [["vector", *range(25)], ["fifo", *range(1, 26)]]
    page = Page(render_study(study(tmp_path, table=ResultTable(["protocol", *names], 1, rows))))
    tables = page.text.split("One row a configuration")[1:]
    assert len(tables) > 1
    assert all("vector" in text and "fifo" in text for text in tables)
    assert all(name in page.text for name in names)


def test_what_is_between_backticks_is_code(tmp_path: Path) -> None:
    claims = [{**claim("C1", True), "statement": "The header of `vector<n>` grows.", "measured": "a ` alone"}]
    document = render_study(study(tmp_path, claims=claims, description="With `flood` beside it."))
    assert "The header of <code>vector&lt;n&gt;</code> grows." in document
    assert "a ` alone" in document
    assert "<p>With <code>flood</code> beside it.</p>" in document


def test_abbreviations_source_and_number_of_runs_are_on_the_page(tmp_path: Path) -> None:
    text = Page(render_study(study(tmp_path))).text
    assert "B bytes" in text
    assert "[PC18] Nédelec" in text
    assert "n = 1 run a point" in text


def columns_of(document: str) -> list[list[list[str]]]:
    """For every table of results its columns: the pieces of the header, then the cells, with their classes cut off."""
    found = []
    for text in document.split("<details>")[1:]:
        table_rows = re.findall(r"<tr>(.*?)</tr>", text.split("</details>")[0])
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table_rows]
        found.append([list(column) for column in zip(*cells, strict=True)])
    return found


def letters(column: list[str]) -> int:
    return max(len(piece) for cell in (*column[0].split("<wbr>"), *column[1:]) for piece in (cell,))


@pytest.mark.parametrize("parameters", [3, 18])
def test_every_table_of_results_fits_a_wide_screen(tmp_path: Path, parameters: int) -> None:
    """The page has room for about a hundred letters; long names may be broken at their underscores."""
    names = [f"parameter_{i}" for i in range(parameters)] + [f"long_name_of_what_was_measured_{i}" for i in range(9)]
    rows = [[10**9 + place * row for place in range(1, len(names) + 1)] for row in range(1, 4)]
    tables = columns_of(render_study(study(tmp_path, table=ResultTable(names, parameters, rows))))
    assert len(tables) > 1
    assert all(sum(letters(column) + 1 for column in table) <= 100 for table in tables)
    shown = [column[0].replace("<wbr>", "") for table in tables for column in table]
    assert set(names) <= set(shown)


def test_rows_have_numbers_where_parameters_leave_no_room_for_what_was_measured(tmp_path: Path) -> None:
    names = [f"parameter_{i}" for i in range(18)] + ["measured"]
    rows = [[10**9 + place * row for place in range(1, len(names) + 1)] for row in range(1, 4)]
    document = render_study(study(tmp_path, table=ResultTable(names, 18, rows)))
    assert all(table[0] == ["row", "1", "2", "3"] for table in columns_of(document))
    assert "which has the same number in every table" in Page(document).text


def test_only_numbers_are_aligned_as_numbers(tmp_path: Path) -> None:
    rows = [["vector", "zipf", 1.5, True], ["fifo", "one", None, False]]
    document = render_study(study(tmp_path, table=ResultTable(["protocol", "groups", "rate", "complete"], 2, rows)))
    aligned = re.findall(r'<th scope="col" class="number">(\w+)</th>', document)
    assert aligned == ["rate"]


def test_on_a_phone_claims_are_told_one_thing_under_the_other(tmp_path: Path) -> None:
    page = Page(render_study(study(tmp_path)))
    assert any("stacked" in str(found.get("class")) for found in page.all("table"))
    labels = [str(cell["data-label"]) for cell in page.all("td") if "data-label" in cell]
    assert labels == ["here", "statement", "measured", "source"]
