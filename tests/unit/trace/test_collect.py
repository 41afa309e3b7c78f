"""A directory of journals is a run: lives in a row, a crash where nobody said goodbye, and words for assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ordercast.trace.collect import describe_run, has_journals, journal_tables
from ordercast.trace.journal import Journal, journal_path
from ordercast.trace.store import Manifest, TraceError
from ordercast.verify.judge import judge_path
from tests.support.trace_builder import result

if TYPE_CHECKING:
    from pathlib import Path

LINES: dict[str, str] = {
    "publish": '{"kind":"publish","time_ns":%d,"msg":"m","topic":"t","guarantee":"causal"}',
    "deliver": '{"kind":"deliver","time_ns":%d,"msg":"m","topic":"t"}',
    "subscribe": '{"kind":"subscribe","time_ns":%d,"topic":"t"}',
    "leave": '{"kind":"leave","time_ns":%d}',
    "end": '{"kind":"end","time_ns":%d}',
    "kept": '{"kind":"join","time_ns":%d,"info":{"state":"kept"}}',
    "recover": '{"kind":"recover","time_ns":%d,"info":{"state":"kept"}}',
    "here": '{"kind":"join","time_ns":%d,"info":{"boot":"here"}}',
    "there": '{"kind":"join","time_ns":%d,"info":{"boot":"there","order_scope":"key"}}',
}


def write(run: Path, **lives: str) -> Path:
    """`ann_0="subscribe publish"` is the journal of ann's life 0; times count up within it."""
    (run / "journals").mkdir(parents=True, exist_ok=True)
    for name_life, words in lives.items():
        name, life = name_life.rsplit("_", 1)
        lines = [LINES[word] % (int(life) * 100 + at) + "\n" for at, word in enumerate(words.split())]
        journal_path(run / "journals", name, int(life)).write_text("".join(lines))
    return run


def history(run: Path, node: str) -> list[tuple[Any, ...]]:
    rows = [row for table in journal_tables(run, "r") for row in table.to_pylist() if row["node"] == node]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    return [(row["kind"], row["time_ns"], *(value for _, value in row["info"] or ())) for row in rows]


def test_a_life_without_a_last_word_ended_in_a_crash(tmp_path: Path) -> None:
    write(tmp_path, ann_0="subscribe", ann_1="kept deliver", ann_10="deliver", ann_2="deliver end")
    assert history(tmp_path, "ann") == [
        ("subscribe", 0), ("crash", 0),
        ("recover", 100, "kept"), ("join", 100, "kept"), ("deliver", 101), ("crash", 101),
        ("recover", 200, "lost"), ("deliver", 200),
        ("recover", 1000, "lost"), ("deliver", 1000), ("crash", 1000),
    ]  # fmt: skip


@pytest.mark.parametrize("last", ["leave", "end"])
def test_who_says_goodbye_has_not_crashed(tmp_path: Path, last: str) -> None:
    write(tmp_path, ann_0=f"subscribe {last}", bob_0=last)
    stayed = ("true",) if last == "end" else ()
    assert history(tmp_path, "ann") == [("subscribe", 0), ("leave", 1, *stayed)]
    assert history(tmp_path, "bob") == [("leave", 0)] * (last == "leave")  # It was a member of nothing.


def test_a_member_that_comes_back_with_its_state_has_not_ended_in_between(tmp_path: Path) -> None:
    write(tmp_path, ann_0="subscribe end", ann_1="kept end", bob_0="subscribe end", bob_1="here end")
    assert [kind for kind, *_ in history(tmp_path, "ann")] == ["subscribe", "recover", "join", "leave"]
    assert [kind for kind, *_ in history(tmp_path, "bob")] == ["subscribe", "leave", "recover", "join"]


def test_a_life_that_begins_with_recover_needs_no_other(tmp_path: Path) -> None:
    write(tmp_path, ann_0="subscribe", ann_1="recover end")
    assert [kind for kind, *_ in history(tmp_path, "ann")] == ["subscribe", "crash", "recover", "leave"]


def test_a_torn_last_line_is_no_row_and_a_life_without_rows_no_life(tmp_path: Path) -> None:
    write(tmp_path, ann_0="subscribe end", ann_1="", bob_0="subscribe")
    with journal_path(tmp_path / "journals", "bob", 0).open("a") as file:
        file.write('{"kind":"deliver","ti')
    assert [kind for kind, *_ in history(tmp_path, "ann")] == ["subscribe", "leave"]
    assert [kind for kind, *_ in history(tmp_path, "bob")] == ["subscribe", "crash"]


@pytest.mark.parametrize(("bob", "clock", "order_scope"), [("here", "global", "session"), ("there", "local", "key")])
def test_a_run_without_a_manifest_is_taken_for_one_of_brokers(
    tmp_path: Path, bob: str, clock: str, order_scope: str
) -> None:
    manifest, assumed = describe_run(write(tmp_path / "night", ann_0="here", bob_0=bob))
    assert manifest == Manifest(
        run_id="night", protocol="broker", guarantee="mixed", scope="topic", order_scope=order_scope, clock=clock,
        nodes=["ann", "bob"], uniform=False, leavers_pass_on=True,
    )  # fmt: skip
    assert assumed.startswith(f"no run.json: protocol broker, guarantee mixed, scope topic, order_scope {order_scope}")


def test_the_judge_reads_journals_and_says_what_it_assumed(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "one", ann_0="here subscribe publish deliver end", bob_0="here subscribe end")
    (verdict,) = judge_path(tmp_path / "runs")
    assert result(verdict, "agreement").verdict == "unknown"
    (vouched,) = judge_path(tmp_path / "runs", complete=True)
    assert result(vouched, "agreement").verdict == "fail"
    assert "no run.json" in str(verdict.facts["assumed"])


def test_who_crashed_owes_nothing(tmp_path: Path) -> None:
    write(tmp_path, ann_0="here subscribe publish deliver end", bob_0="here subscribe")
    (verdict,) = judge_path(tmp_path)
    assert result(verdict, "agreement").verdict == "pass"


def test_a_manifest_beside_the_journals_is_believed(tmp_path: Path) -> None:
    manifest = Manifest(run_id="r7", protocol="broker", guarantee="mixed", scope="topic", drained=False)
    write(tmp_path, ann_0="subscribe publish end", bob_0="subscribe end")
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(manifest))
    (verdict,) = judge_path(tmp_path)
    assert (verdict.run, result(verdict, "agreement").verdict) == ("r7", "unknown")
    assert "assumed" not in verdict.facts


def test_events_that_were_collected_come_before_journals(tmp_path: Path) -> None:
    write(tmp_path, ann_0="end")
    assert has_journals(tmp_path)
    (tmp_path / "events").mkdir()
    assert not has_journals(tmp_path)


@pytest.mark.parametrize("name", ["ann.jsonl", "ann.x.jsonl", ".1.jsonl"])
def test_a_journal_with_another_name_is_refused_by_it(tmp_path: Path, name: str) -> None:
    write(tmp_path, ann_0="end")
    Journal(tmp_path / "journals" / name, packets=False).close()
    with pytest.raises(TraceError, match=f"{name}: a journal is called NAME.LIFE.jsonl"):
        judge_path(tmp_path)


def test_an_unknown_kind_in_a_journal_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ann_0="end")
    (tmp_path / "journals" / "bob.0.jsonl").write_text('{"kind":"party","time_ns":1}\n')
    with pytest.raises(TraceError, match="unknown kind 'party'"):
        judge_path(tmp_path)
