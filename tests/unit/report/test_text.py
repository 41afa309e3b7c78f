"""The terminal tables: complete, and safe from names that look like markup."""

from __future__ import annotations

import io

from rich.console import Console

from ordercast.report.text import print_metrics, print_verdicts
from ordercast.verify.verdict import FAIL
from tests.unit.report.builders import bare_metrics, full_metrics, verdict


def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_verdicts_come_with_the_story_of_each_violation() -> None:
    out = console()
    print_verdicts([verdict(causal=FAIL)], out)

    lines = said(out).splitlines()
    assert lines[0] == "calm-7  vector, mixed: violated"
    assert any(line.split()[:5] == ["causal", "fail", "yes", "3,600", "2"] for line in lines)
    assert "causal broken at cho: ann#4, bob#9" in lines
    assert "  3. cho delivered bob#9 first" in lines
    assert lines[-1] == "and 1 more of causal (--json and the report tell of some)"
    assert not any(line.startswith("total") for line in lines), "nobody claimed it and it does not apply"


def test_a_run_that_could_not_be_judged_says_why() -> None:
    out = console()
    print_verdicts([verdict(results=[], reason="the trace has holes")], out)
    assert said(out).splitlines() == ["calm-7  vector, mixed: undecided", "the trace has holes"]


def test_brackets_in_names_are_printed_as_they_are() -> None:
    out = console()
    print_verdicts([verdict("[bold]x[/nope]", protocol="[red]")], out)
    print_metrics([full_metrics("[/]")], out)

    assert "[bold]x[/nope]  [red], mixed: held" in said(out)
    assert "[/]  vector" in said(out)


def test_metrics_of_one_run_are_complete() -> None:
    out = console()
    print_metrics([full_metrics()], out)

    lines = [" ".join(line.split()) for line in said(out).splitlines()]
    assert "deliveries per second 1,440" in lines
    assert "latency, causal 100 20 ms 20 ms 36 ms 39.6 ms 40 ms 40 ms" in lines
    assert "received messages that had to wait 25.0%" in lines


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    out = console()
    print_metrics([bare_metrics()], out)
    assert "not measured: latency_ms, timeline (the trace has no time_ns)" in said(out)


def test_many_runs_are_only_compared() -> None:
    few, many = console(), console()
    print_metrics([full_metrics(f"r{index}") for index in range(2)], few)
    print_metrics([full_metrics(f"r{index}") for index in range(9)], many)

    assert said(few).count("messages published") == 2
    assert said(many).count("messages published") == 0
    assert len(said(many).splitlines()) == 1 + 9
