"""Traces come in several shapes, and what is wrong with one is said in one line that names the place."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.trace.schema import COLUMNS
from ordercast.trace.store import TraceError
from ordercast.trace.writer import RunWriter
from ordercast.verify.judge import judge_path
from ordercast.verify.load import load
from tests.support.random_traces import table_of
from tests.support.trace_builder import manifest, result, rows

if TYPE_CHECKING:
    from pathlib import Path

GOOD = [
    {name: value for name, value in row.items() if name != "run"}
    for row in rows("a publishes m1", "b delivers m1", "b publishes m2", "a delivers m2")
]
FIELDS = ("node", "seq", "kind", "msg", "topic")


def json_lines(path: Path, made: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def run_directory(path: Path, made: list[dict[str, Any]], **about: Any) -> Path:
    writer = RunWriter(path)
    writer.write([tuple(row.get(name) for name, _, _ in COLUMNS) for row in made])
    return writer.finish(manifest(**about))


def problem(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        judge_path(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path.name) in text
    return text


def test_the_same_trace_gets_the_same_verdict_in_every_format(tmp_path: Path) -> None:
    plain = [{name: row.get(name) for name in FIELDS} for row in GOOD]
    csv = tmp_path / "trace.csv"
    lines = [["" if value is None else str(value) for value in row.values()] for row in plain]
    csv.write_text("".join(",".join(line) + "\n" for line in [FIELDS, *lines]))
    parquet = tmp_path / "trace.parquet"
    pq.write_table(pa.Table.from_pylist(plain), parquet)
    found = [judge_path(path)[0] for path in (json_lines(tmp_path / "trace.jsonl", plain), csv, parquet)]
    assert [verdict.results for verdict in found] == [found[0].results] * 3
    assert found[0].exit_code() == 0
    assert result(found[0], "causal").deliveries == 2


def test_lists_are_natural_in_json_and_cut_at_semicolons_in_csv(tmp_path: Path) -> None:
    lists = {"keys": ["k", "l"], "dst": ["b", "c"]}
    made = [{"node": "a", "seq": 0, "kind": "publish", "msg": "m", **lists}]
    csv = tmp_path / "trace.csv"
    csv.write_text("node,seq,kind,msg,keys,dst\na,0,publish,m,k;l,b;c\n")
    for path in (json_lines(tmp_path / "trace.jsonl", made), csv):
        (trace,) = load(path)
        assert trace.table.select(["keys", "dst"]).to_pylist() == [lists]


def test_ids_may_be_numbers_and_unknown_columns_are_ignored(tmp_path: Path) -> None:
    table = pa.table(
        {
            "node": [1, 2],
            "seq": pa.array([0, 0], pa.int32()),
            "kind": ["publish", "deliver"],
            "msg": [7, 7],
            "topic": pa.array(["t", None], pa.large_string()),
            "colour": ["red", "blue"],
            "info": ["not", "ours"],
        }
    )
    path = tmp_path / "trace.parquet"
    pq.write_table(table, path)
    assert judge_path(path)[0].exit_code() == 0
    made = table.drop_columns(["info"]).to_pylist()
    assert judge_path(json_lines(tmp_path / "trace.jsonl", made))[0].exit_code() == 0


def test_a_run_directory_is_judged_by_its_manifest(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "run", GOOD, guarantee="causal", scope="topic", groups={"t": ["a", "b"]})
    (verdict,) = judge_path(path)
    assert (verdict.run, verdict.protocol, verdict.guarantee, verdict.scope) == ("r", "by hand", "causal", "topic")
    assert result(verdict, "agreement").violations == 2  # nobody delivered its own message


def test_several_runs_in_a_directory_or_in_a_file_are_judged_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_directory(tmp_path / "runs" / "deeper" / name, GOOD, run_id=name)
    assert [verdict.run for verdict in judge_path(tmp_path / "runs")] == ["one", "two"]
    mixed = [{**row, "run": run} for row in GOOD for run in ("x", "y")]
    assert [verdict.run for verdict in judge_path(json_lines(tmp_path / "mixed.jsonl", mixed))] == ["x", "y"]


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    (verdict,) = judge_path(json_lines(tmp_path / "trace.jsonl", GOOD[::-1]))
    assert verdict.exit_code() == 0


@pytest.mark.parametrize("missing", ["node", "kind", "msg"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    made = [{name: row.get(name) for name in FIELDS if name != missing} for row in GOOD]
    assert problem(json_lines(tmp_path / "trace.jsonl", made)).endswith(f"no column {missing}")
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "trace.parquet")
    assert problem(tmp_path / "trace.parquet").endswith(f"no column {missing}")


def test_a_publication_for_nobody_is_named(tmp_path: Path) -> None:
    made = [{**GOOD[0], "topic": None}]
    assert "publish of m1 has neither topic nor dst" in problem(json_lines(tmp_path / "trace.jsonl", made))


def test_the_same_place_in_a_history_twice_is_named(tmp_path: Path) -> None:
    made = [*GOOD, {**GOOD[1], "msg": "m2"}]
    assert "node b has seq 0 twice" in problem(json_lines(tmp_path / "trace.jsonl", made))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"node": "a", "seq": 0', ":5: "),
        ('{"node": "a", "seq": "zero", "kind": "publish"}', ":5: Expected `int | null`, got `str`"),
        ('{"node": "a", "seq": 9, "kind": "shout", "msg": "m"}', "row 5: unknown kind 'shout'"),
        ('{"seq": 9, "kind": "publish", "msg": "m"}', "row 5 has no node"),
        ('{"node": "a", "seq": 9, "kind": "deliver"}', "node a, seq 9: deliver without msg"),
        ('{"node": "a", "seq": -1, "kind": "deliver", "msg": "m"}', "row 5: seq -1 is out of range"),
        ('{"node": "a", "seq": 9, "kind": "subscribe"}', "node a, seq 9: subscribe without topic"),
        (
            '{"node": "a", "seq": 9, "kind": "publish", "msg": "m", "topic": "t", "guarantee": "best"}',
            "unknown guarantee 'best'",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = json_lines(tmp_path / "trace.jsonl", GOOD)
    path.write_text(path.read_text() + line + "\n")
    assert told in problem(path)


def test_a_bad_csv_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("node,seq,kind,msg,topic\na,0,publish,m1,t\na,one,publish,m2,t\n")
    assert ":3: seq is 'one', not a whole number" in problem(path)
    path.write_text("node,seq,kind,msg,topic\na,0,publish\n")
    assert "trace.csv" in problem(path)
    path.write_text("")
    assert "empty file" in problem(path)
    path.write_text("this,is,not\n1,2,3\n")
    assert "no column node" in problem(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(table_of(GOOD), path)
    path.write_bytes(path.read_bytes()[:-20])
    assert "unreadable Parquet" in problem(path)
    path.write_bytes(b"")
    assert "unreadable Parquet" in problem(path)
    empty = tmp_path / "trace.jsonl"
    empty.write_text("")
    assert "no event" in problem(empty)
    assert "not a trace" in problem(json_lines(tmp_path / "trace.txt", GOOD))
    assert "no such file" in problem(tmp_path / "nowhere")


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no run in this directory" in problem(tmp_path / "empty")


def test_a_damaged_run_directory_is_named(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "run", GOOD)
    about = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(about | {"format": 99}))
    assert "format 99 is newer" in problem(path)
    (path / "run.json").write_text(json.dumps(about | {"guarantee": "best"}))
    assert "unknown guarantee 'best'" in problem(path)
    (path / "run.json").write_text(json.dumps(about | {"scope": "galaxy"}))
    assert "unknown scope 'galaxy'" in problem(path)


def test_an_unknown_check_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="unknown check 'speed'"):
        judge_path(json_lines(tmp_path / "trace.jsonl", GOOD), checks=["speed"])


def as_text(ending: str, made: list[dict[str, Any]], fields: tuple[str, ...] = FIELDS) -> bytes:
    """The rows as a file of that ending holds them."""
    plain = [{name: row.get(name) for name in fields} for row in made]
    if ending.startswith(".json"):
        lines = [json.dumps(row) for row in plain]
        return (f"[{','.join(lines)}]" if ending == ".json" else "\n".join(lines)).encode()
    apart = {".csv": ",", ".tsv": "\t"}[ending]
    cells = [["" if value is None else str(value) for value in row.values()] for row in plain]
    return "".join(apart.join(line) + "\n" for line in [fields, *cells]).encode()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with byte-order mark"])
@pytest.mark.parametrize("packed", [False, True], ids=["as it is", "compressed"])
@pytest.mark.parametrize("numbered", [True, False], ids=["with seq", "in file order"])
def test_files_are_read_as_people_have_them(
    tmp_path: Path, ending: str, mark: bytes, packed: bool, numbered: bool
) -> None:
    text = mark + as_text(ending, GOOD, FIELDS if numbered else tuple(name for name in FIELDS if name != "seq"))
    path = tmp_path / f"trace{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text) if packed else text)

    (verdict,) = judge_path(path)

    assert (verdict.exit_code(), result(verdict, "causal").deliveries) == (0, 2)
    assert ("no seq" in str(verdict.facts["assumed"])) == (not numbered)


def test_a_directory_of_plain_files_is_one_trace_whose_parts_follow_each_other(tmp_path: Path) -> None:
    fields = tuple(name for name in FIELDS if name != "seq")
    (tmp_path / "part-1.csv").write_bytes(as_text(".csv", GOOD[:2], fields))
    (tmp_path / "part-2.jsonl").write_bytes(as_text(".jsonl", GOOD[2:], fields))
    (tmp_path / "README.txt").write_text("not a trace")

    (verdict,) = judge_path(tmp_path)

    assert (verdict.exit_code(), result(verdict, "causal").deliveries) == (0, 2)
    assert verdict.run == tmp_path.name


def test_a_compressed_file_that_is_cut_or_is_none_is_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(as_text(".jsonl", GOOD) * 50)[:-20])
    wrong = tmp_path / "wrong.csv.gz"
    wrong.write_bytes(as_text(".csv", GOOD))
    assert "cannot be read" in problem(cut)
    assert "cannot be read" in problem(wrong)


def test_an_array_with_a_wrong_event_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"node": "a", "seq": 0, "kind": "publish", "msg": "m", "topic": "t"}, {"node": ["a"]}]')
    assert "$[1].node" in problem(path)
