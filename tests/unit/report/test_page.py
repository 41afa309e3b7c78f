"""The page of runs says what was found, stands alone, and trusts no name it prints."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from ordercast.report.page import RunReport, render, write_report
from ordercast.trace.store import TraceError
from ordercast.verify.verdict import FAIL, UNKNOWN
from tests.unit.report.builders import bare_metrics, full_metrics, manifest, spread, verdict

if TYPE_CHECKING:
    from pathlib import Path


class Page(HTMLParser):
    """The text of a page, and its elements, with unbalanced ones found out."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(document)
        assert self._open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br", "wbr"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def one_run(causal: str = "pass") -> RunReport:
    return RunReport(manifest(), verdict(causal=causal), full_metrics())


def test_a_run_that_held_says_so_and_over_how_much() -> None:
    page = Page(render([one_run()]))
    assert "Held: integrity, causal, over 3,600 deliveries" in page.text


def test_a_violation_is_told_as_a_story() -> None:
    page = Page(render([one_run(FAIL)]))
    assert "Violated: causal" in page.text
    assert "causal broken at cho on ann#4, bob#9" in page.text
    assert "bob delivered ann#4, then published bob#9" in page.text


def test_an_undecided_run_names_what_could_not_be_decided_and_why() -> None:
    page = Page(render([one_run(UNKNOWN)]))
    assert "Undecided: causal" in page.text
    assert "the drain at the end is missing" in page.text


def test_what_was_run_is_there_to_repeat_it() -> None:
    text = Page(render([one_run()])).text
    for fact in ("scenario calm", "seed 7", "faults that fired crash 1", "recorded by ordercast 0.1.0", "came to rest"):
        assert fact in text


def test_the_page_needs_nothing_but_itself() -> None:
    document = render([one_run(FAIL), RunReport(None, verdict("foreign"), bare_metrics())])
    page = Page(document)
    namespaces = {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}

    assert set(re.findall(r"https?://[^\"' )]+", document)) <= namespaces
    assert not page.all("script")
    assert not page.all("link")
    assert "@import" not in document


def test_names_of_others_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>&\"'$x_{"
    run = RunReport(manifest(), verdict(evil, FAIL, protocol=evil, path=evil), full_metrics(evil))
    page = Page(render([run, run]))

    assert not page.all("script")
    assert evil in page.text


def test_every_figure_has_words_and_every_table_headers() -> None:
    page = Page(render([one_run(), one_run()]))
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]

    figures = page.all("svg")
    assert len(figures) == 2 + 2 * 4
    assert all(figure["aria-labelledby"] in ids for figure in figures)
    assert len(ids) == len(set(ids))
    assert all(header["scope"] in {"row", "col"} for header in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))


def test_figures_take_their_colours_from_the_page() -> None:
    svg = "".join(re.findall(r"<svg.*?</svg>", render([one_run()]), flags=re.DOTALL))
    assert "var(--s0)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []


def test_missing_metrics_are_reasons_and_not_empty_figures() -> None:
    page = Page(render([RunReport(None, verdict("foreign"), bare_metrics())]))
    assert "latency_ms, timeline the trace has no time_ns" in page.text
    assert page.all("svg") == []


def test_a_distribution_of_nothing_but_zeros_is_not_drawn() -> None:
    silent = RunReport(manifest(), verdict(), full_metrics(hold_back_ms=spread(0)))
    assert len(Page(render([silent])).all("figure")) == len(Page(render([one_run()])).all("figure")) - 1


def test_several_runs_are_compared_and_linked() -> None:
    runs = [RunReport(manifest(), verdict(name), full_metrics(name)) for name in ("a", "b")]
    runs.append(RunReport(manifest(), verdict("c", FAIL), full_metrics("c", deliveries_per_s=99.0)))
    page = Page(render(runs))

    assert "2 held, 1 violated" in page.text
    assert [link["href"] for link in page.all("a")] == ["#run-0", "#run-1", "#run-2"]
    assert {"run-0", "run-1", "run-2"} <= {attributes.get("id") for _, attributes in page.elements}


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_report(tmp_path / "deep" / f"{name}.html", [one_run(FAIL)])
    first, second = sorted((tmp_path / "deep").iterdir())

    assert first.read_bytes() == second.read_bytes()


def test_a_page_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    (taken / "in it").mkdir(parents=True)

    with pytest.raises(TraceError, match=r"taken: cannot be written: Is a directory"):
        write_report(taken, [one_run()])
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_words_of_a_single_named_curve_say_what_its_numbers_are() -> None:
    one = full_metrics(latency_ms={"causal": spread(42.7)})
    text = Page(render([RunReport(manifest(), verdict(), one)])).text
    assert re.search(r"Latency from publication to delivery : causal: median [\d.]+ ms, p99 [\d.]+ ms\.", text)
