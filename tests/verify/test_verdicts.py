"""When a run passes and when nobody can say: obligations, claims, holes, drains, runs in which nothing happened."""

from __future__ import annotations

from tests.support.trace_builder import judged, manifest, result, rows


def verdict_of(check: str, lines: tuple[str, ...], **options: object) -> str:
    about = options.pop("about", None)
    return result(judged(rows(*lines), about, **options), check).verdict


def test_a_hole_in_a_history_leaves_order_undecided() -> None:
    made = rows("a publishes m1", "b delivers m1", "b delivers m2", "a publishes m2")
    made[2]["seq"] = 5
    verdict = judged(made)
    assert {result.verdict for result in verdict.results if result.claimed} == {"unknown"}
    assert "node b lacks 4 (the first is seq 1)" in result(verdict, "causal").reason
    assert verdict.exit_code() == 4
    assert verdict.facts["holes"] == result(verdict, "causal").reason


def test_a_history_that_does_not_begin_at_zero_has_a_hole() -> None:
    made = rows("a publishes m1", "b delivers m1")
    made[1]["seq"] = 1
    assert judged(made).exit_code() == 4


def test_an_invention_is_a_violation_even_beside_a_hole() -> None:
    made = rows("a publishes m1", "b delivers m1", "b delivers ghost")
    made[2]["seq"] = 7
    assert judged(made).exit_code() == 1


def test_nothing_published_is_nothing_judged() -> None:
    verdict = judged(rows("a subscribes t"), manifest(guarantee="causal"))
    assert verdict.exit_code() == 4
    assert verdict.reason == "nothing was published"
    assert {result.verdict for result in verdict.results} == {"not applicable"}


def test_without_a_drain_what_is_missing_may_be_on_its_way() -> None:
    lines = ("a publishes m1",)
    about = manifest(groups={"t": ["b"]}, drained=False)
    assert verdict_of("agreement", lines, about=about) == "unknown"
    assert judged(rows(*lines), about).exit_code() == 4


def test_each_message_is_held_to_its_own_guarantee() -> None:
    lines = ("a publishes m1", "a publishes m2", "b delivers m2", "b delivers m1")
    weak = judged(rows(*lines, m1={"guarantee": "eventual"}, m2={"guarantee": "fifo"}))
    assert (result(weak, "fifo").verdict, result(weak, "fifo").deliveries) == ("pass", 1)
    assert result(weak, "causal").verdict == "not applicable"
    strong = judged(rows(*lines, m1={"guarantee": "fifo"}, m2={"guarantee": "fifo"}))
    assert result(strong, "fifo").verdict == "fail"


def test_happened_before_runs_through_messages_of_any_guarantee() -> None:
    lines = (
        "a publishes m1", "b delivers m1", "b publishes m2", "c delivers m2", "c publishes m3", "d delivers m3",
        "d delivers m1",
    )  # fmt: skip
    weak_link = judged(rows(*lines, m2={"guarantee": "eventual"}))
    assert result(weak_link, "causal").verdict == "fail"
    assert result(weak_link, "causal").witnesses[0].messages == ["m1", "m2", "m3"]


def test_checks_that_are_asked_for_bind_messages_without_a_guarantee() -> None:
    lines = ("a publishes m1", "a publishes m2", "b delivers m2", "b delivers m1")
    about = manifest(guarantee="eventual")
    assert verdict_of("fifo", lines, about=about) == "not applicable"
    assert verdict_of("fifo", lines, about=about, checks=["fifo"]) == "fail"


def test_the_run_claims_what_its_manifest_says() -> None:
    verdict = judged(rows("a publishes m1", "b delivers m1"), manifest(guarantee="fifo"))
    assert [result.check for result in verdict.results if result.claimed] == ["integrity", "agreement", "fifo"]


def test_a_subscription_binds_only_what_was_published_after_it_was_known() -> None:
    lines = ("b subscribes t", "a publishes m1")
    assert verdict_of("agreement", lines, about=manifest()) == "not applicable"  # a may not know of b yet
    assert verdict_of("agreement", lines, about=manifest(clock="global")) == "fail"
    known = ("b subscribes t", "b publishes m0", "b delivers m0", "a subscribes t", "a delivers m0", "a publishes m1")
    assert result(judged(rows(*known), manifest()), "agreement").violations == 2  # b's, and a's own


def test_who_left_must_not_get_what_was_published_after_and_may_get_the_rest() -> None:
    before = ("b subscribes t", "a publishes m1", "b unsubscribes t", "b delivers m1")
    assert verdict_of("integrity", before, about=manifest(clock="global")) == "pass"
    after = ("b subscribes t", "b leaves", "a publishes m1", "b delivers m1")
    assert verdict_of("integrity", after, about=manifest(clock="global")) == "fail"
    assert verdict_of("integrity", after, about=manifest()) == "pass"  # a may not know that b left


def test_a_node_that_joins_at_its_first_row_was_no_member_before() -> None:
    lines = ("a publishes m1", "b joins", "a publishes m2", "b delivers m2")
    about = manifest(groups={"t": ["b"]}, clock="global")
    assert verdict_of("agreement", lines, about=about) == "pass"
    assert verdict_of("agreement", lines[:1] + lines[2:], about=about) == "fail"


def test_a_node_that_is_down_at_the_end_owes_nothing() -> None:
    about = manifest(groups={"t": ["b", "c"]})
    lines = ("a publishes m1", "c delivers m1", "b crashes")
    assert verdict_of("agreement", lines, about=about) == "pass"
    assert verdict_of("agreement", (*lines, "b recovers kept"), about=about) == "fail"


def test_a_node_that_lost_its_state_is_a_new_one() -> None:
    about = manifest(groups={"t": ["b"]}, clock="global")
    lines = ("a publishes m1", "b delivers m1", "b crashes", "b recovers lost")
    assert verdict_of("integrity", (*lines, "b delivers m1"), about=about) == "pass"
    assert verdict_of("agreement", lines, about=about) == "pass"
    assert verdict_of("agreement", (*lines, "a publishes m2"), about=about) == "fail"
    kept = (*lines[:3], "b recovers kept", "b delivers m1")
    assert verdict_of("integrity", kept, about=about) == "fail"


def test_a_foreign_trace_without_own_deliveries_owes_none() -> None:
    lines = ("a publishes m1", "b delivers m1", "b publishes m2", "a delivers m2")
    assert verdict_of("agreement", lines) == "pass"
    some = (*lines, "a publishes m3", "a delivers m3", "b delivers m3")
    assert verdict_of("agreement", some) == "unknown"  # it does record them, so m1 at a is missing
    assert verdict_of("agreement", some, complete=True) == "fail"
    assert verdict_of("agreement", some, complete=True, own_deliveries=False) == "pass"
    assert verdict_of("agreement", lines, complete=True, own_deliveries=True) == "fail"


def test_deliveries_that_waited_for_an_earlier_one_are_counted() -> None:
    lines = ("a publishes m1", "a publishes m2", "b receives m2", "b receives m1", "b delivers m1", "b delivers m2")
    assert judged(rows(*lines)).facts["deliveries that waited"] == 1


def test_faults_that_fired_are_among_the_facts() -> None:
    about = manifest(faults={"crash": 2, "drop": 3})
    assert judged(rows("a publishes m1", "b delivers m1"), about).facts["faults fired"] == 5


def test_an_empty_trace_is_nothing_judged() -> None:
    verdict = judged([], manifest(nodes=["a"], groups={"t": ["a"]}))
    assert (verdict.exit_code(), verdict.reason) == (4, "nothing was published")


def test_what_leaves_a_run_undecided_is_its_reason() -> None:
    verdict = judged(rows("a publishes m1"), manifest(groups={"t": ["b"]}, drained=False), checks=["agreement"])
    assert verdict.reason.startswith("the run did not end with a drain")
