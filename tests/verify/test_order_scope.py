"""With `order_scope: "key"` a publisher's own order counts only between publications that share a key."""

from __future__ import annotations

import pytest

from ordercast.trace.store import TraceError
from tests.support.trace_builder import judged, manifest, result, rows, story

A, B, AB = {"keys": ["a"]}, {"keys": ["b"]}, {"keys": ["a", "b"]}
EVERYONE = {"t": ["p", "q", "r"]}
KEY = manifest(guarantee="causal", groups=EVERYONE, order_scope="key")
SESSION = manifest(guarantee="causal", groups=EVERYONE)


def test_publications_on_different_keys_may_overtake_each_other() -> None:
    made = rows(
        "p publishes m1", "p publishes m2", "p delivers m1", "p delivers m2",
        "q delivers m2", "q delivers m1", "r delivers m1", "r delivers m2", m1=A, m2=B,
    )  # fmt: skip
    assert {result(judged(made, KEY), check).verdict for check in ("fifo", "causal")} == {"pass"}
    assert {result(judged(made, SESSION), check).verdict for check in ("fifo", "causal")} == {"fail"}


def test_publications_that_share_one_key_of_several_may_not() -> None:
    made = rows(
        "p publishes m1", "p publishes m2", "p delivers m1", "p delivers m2",
        "q delivers m2", "q delivers m1", "r delivers m1", "r delivers m2", m1=A, m2=AB,
    )  # fmt: skip
    assert story(judged(made, KEY), "fifo") == [
        "p published m1 (seq 0) and then m2 (seq 1)",
        "q delivered m2 (seq 0) but m1 only later (seq 1)",
    ]
    assert "p published m1 (seq 0) and then published m2 (seq 1)" in story(judged(made, KEY), "causal")


def test_publications_without_a_key_share_that() -> None:
    made = rows(
        "p publishes m1", "p publishes m2", "p delivers m1", "p delivers m2",
        "q delivers m2", "q delivers m1", "r delivers m1", "r delivers m2", m1={"keys": [""]}, m2={"keys": None},
    )  # fmt: skip
    assert result(judged(made, KEY), "fifo").verdict == "fail"


def test_an_own_echo_that_is_back_counts_as_delivered() -> None:
    made = rows(
        "p publishes m1", "p delivers m1", "p publishes m2", "p delivers m2",
        "q delivers m2", "q delivers m1", "r delivers m1", "r delivers m2", m1=A, m2=B,
    )  # fmt: skip
    verdict = judged(made, KEY)
    assert result(verdict, "fifo").verdict == "pass"
    assert "p delivered m1 (seq 1) and then published m2 (seq 2)" in story(verdict, "causal")


def test_the_chain_goes_through_shared_keys_and_deliveries_only() -> None:
    made = rows(
        "p publishes m1", "p publishes other", "p publishes m2", "q delivers m2", "q publishes m3",
        "r delivers m3", "r delivers m2", "r delivers m1", "r delivers other",
        "p delivers m1", "p delivers other", "p delivers m2", "p delivers m3",
        "q delivers m1", "q delivers other", "q delivers m3", m1=A, other=B, m2=A, m3=B,
    )  # fmt: skip
    told = [witness for witness in result(judged(made, KEY), "causal").witnesses if witness.node == "r"]
    # m2 may overtake `other`, which is on another key; but m1 -> m2 -> m3.
    assert [witness.messages for witness in told] == [["m1", "m2"], ["m2", "m3"]]


def test_the_caller_may_choose_it_for_a_foreign_trace() -> None:
    made = rows("p publishes m1", "p publishes m2", "q delivers m2", "q delivers m1", m1=A, m2=B)
    assert result(judged(made, checks=["fifo"]), "fifo").verdict == "fail"
    assert result(judged(made, checks=["fifo"], order_scope="key"), "fifo").verdict == "pass"


def test_an_unknown_order_scope_is_refused() -> None:
    with pytest.raises(TraceError, match="unknown order_scope 'topic' \\(session or key\\)"):
        judged(rows("p publishes m1"), manifest(order_scope="topic"))
