"""Numbers in the words people would use."""

from __future__ import annotations

import pytest

from ordercast.report import rows
from ordercast.verify.verdict import FAIL, CheckResult, Verdict, Witness
from tests.unit.report.builders import bare_metrics, full_metrics


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "—"), (0, "0"), (1234567, "1,234,567"), (0.12345, "0.123"), (99.95, "100"), (1234.5, "1,234"), (3.0, "3")],
)
def test_numbers_have_three_digits_or_are_whole(value: float | None, words: str) -> None:
    assert rows.number(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, "—"), (0.0, "0"), (0.0123, "12.3 µs"), (12.34, "12.3 ms"), (61_000.0, "61 s")]
)
def test_times_choose_their_unit(value: float | None, words: str) -> None:
    assert rows.milliseconds(value) == words


def test_what_is_missing_has_no_row_and_a_reason_beside_the_tables() -> None:
    metrics = bare_metrics()
    assert "deliveries per second" not in dict(rows.scalars(metrics))
    assert rows.distributions(metrics) == []
    assert rows.reasons(metrics) == [("latency_ms, timeline", "the trace has no time_ns"), ("drops", "no rows")]


def test_a_comparison_has_a_cell_for_every_header() -> None:
    full, bare = rows.comparison([full_metrics(), bare_metrics()])
    assert len(full) == len(bare) == len(rows.COMPARISON_HEADERS)
    assert full[4:6] == ("20.5 ms", "40.6 ms")
    assert bare[3:] == ("—",) * 7


def test_every_distribution_that_was_measured_has_a_row() -> None:
    assert [row[0] for row in rows.distributions(full_metrics())] == [
        "latency, causal",
        "latency, fifo",
        "latency, all",
        "hold-back",
        "header of a message copy",
        "header of Ack",
        "crash to suspicion",
        "repair",
    ]


def test_columns_in_which_nobody_has_a_value_are_left_out() -> None:
    headers, cells = rows.known_columns(("run", "p50", "p99"), [("a", "—", "3"), ("b", "—", "—")])
    assert (headers, cells) == (["run", "p99"], [["a", "3"], ["b", "—"]])


def test_what_is_not_told_is_counted_without_what_is() -> None:
    witness = Witness("fifo", "cho", ["ann#1"], ["..."])
    broken = CheckResult("fifo", FAIL, 10, 7, claimed=True, witnesses=[witness, witness])
    told = CheckResult("causal", FAIL, 10, 1, claimed=True, witnesses=[witness])
    verdict = Verdict("r", "runs/r", "vector", "causal", "topic", [broken, told], {})

    assert rows.untold(verdict) == "… and 5 more of fifo"
    assert rows.untold(Verdict("r", "runs/r", "vector", "causal", "topic", [told], {})) == ""
