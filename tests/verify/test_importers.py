"""Traces of other tools are read as what they mean, and judged; what is not understood is named in one line."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ordercast.trace.store import TraceError
from ordercast.verify.importers import cs451, jepsen_kafka, libp2p, otel, shiviz
from ordercast.verify.importers.choose import FORMATS, PROMISED, import_trace
from ordercast.verify.judge import judge_trace
from ordercast.verify.verdict import MADE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.verdict import Verdict

RECORDED = Path(__file__).parent / "recorded"


def outcome(verdict: Verdict, check: str) -> str:
    return next(result.verdict for result in verdict.results if result.check == check)


def logs(where: Path, **files: str) -> Path:
    where.mkdir()
    for name, text in files.items():
        (where / f"{name}.output").write_text(text)
    return where


def test_logs_of_a_course_are_judged() -> None:
    verdict = judge_trace(cs451.read(RECORDED / "cs451"), complete=True)
    assert outcome(verdict, "fifo") == "pass"
    assert outcome(verdict, "agreement") == "pass"
    assert outcome(verdict, "causal") == "fail"  # 3 answers what it heard of 1, and 2 hears the answer first.
    assert next(r for r in verdict.results if r.check == "causal").witnesses[0].messages == ["1:2", "3:1"]


def test_logs_may_be_packed_and_damage_to_them_is_named(tmp_path: Path) -> None:
    for log in (RECORDED / "cs451").iterdir():
        (tmp_path / f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
    packed, plain = (judge_trace(cs451.read(where)) for where in (tmp_path, RECORDED / "cs451"))
    assert [result.violations for result in packed.results] == [result.violations for result in plain.results]
    damaged = next(tmp_path.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(TraceError, match=f"{damaged.name}: not what gzip writes"):
        cs451.read(tmp_path)


def test_only_named_senders_affect_a_sender() -> None:
    """The same logs hold if nobody affects process 3, and fail if process 1 does."""
    trace = cs451.read(RECORDED / "cs451")
    free = judge_trace(trace, causes={"1": [], "2": [], "3": []})
    bound = judge_trace(trace, causes=cs451.read_causes(RECORDED / "lcausal.config"))
    assert outcome(free, "causal") == "pass"
    assert outcome(bound, "causal") == "fail"


def test_what_affects_a_sender_goes_on_through_others(tmp_path: Path) -> None:
    """1 affects 2 and 2 affects 3, but 1 does not affect 3: what 3 sends is after 1's message through 2's alone."""
    chain = {"1": [], "2": ["1"], "3": ["2"], "4": []}
    sent = {"proc1": "b 1\n", "proc2": "d 1 1\nb 1\n", "proc3": "d 2 1\nb 1\n", "proc4": "d 3 1\nd 2 1\nd 1 1\n"}
    through = judge_trace(cs451.read(logs(tmp_path / "through", **sent)), causes=chain)
    assert next(r for r in through.results if r.check == "optimistic-causal").violations == 2
    around = {**sent, "proc3": "d 1 1\nb 1\n", "proc4": "d 3 1\nd 1 1\nd 2 1\n"}
    direct = judge_trace(cs451.read(logs(tmp_path / "direct", **around)), causes=chain)
    assert outcome(direct, "optimistic-causal") == "pass"


def test_localized_causal_order_is_what_its_definition_says(tmp_path: Path) -> None:
    """Transitively: m before m' if one process sent both, or if m' was sent after m of a named sender came."""
    broken = 0
    for seed in range(60):
        rng = random.Random(seed)
        causes = {str(p): [str(q) for q in range(4) if q != p and rng.random() < 0.4] for p in range(4)}
        events = _random_broadcasts(rng)
        text = {f"proc{p}": "".join(f"{' '.join(map(str, event))}\n" for event in events[p]) for p in range(4)}
        verdict = judge_trace(cs451.read(logs(tmp_path / str(seed), **text)), causes=causes)
        expected = _inversions(events, causes)
        assert next(r for r in verdict.results if r.check == "optimistic-causal").violations == expected, f"seed {seed}"
        broken += expected > 0
    assert 5 < broken < 55


def _random_broadcasts(rng: random.Random) -> list[list[tuple[Any, ...]]]:
    events: list[list[tuple[Any, ...]]] = [[] for _ in range(4)]
    inbox: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    for _ in range(40):
        p = rng.randrange(4)
        if rng.random() < 0.3:
            number = 1 + sum(1 for event in events[p] if event[0] == "b")
            events[p].append(("b", number))
            for q in range(4):
                inbox[q].append((p, number))
        elif inbox[p]:
            events[p].append(("d", *inbox[p].pop(rng.randrange(min(3, len(inbox[p]))))))
    return events


def _inversions(events: list[list[tuple[Any, ...]]], causes: dict[str, list[str]]) -> int:
    past: dict[tuple[int, int], set[tuple[int, int]]] = {}
    direct: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for p, log in enumerate(events):
        known: set[tuple[int, int]] = set()
        for event in log:
            if event[0] == "b":
                direct[p, event[1]] = set(known)
                known.add((p, event[1]))
            elif event[1] == p or str(event[1]) in causes[str(p)]:
                known.add((event[1], event[2]))

    def before(message: tuple[int, int]) -> set[tuple[int, int]]:
        if message not in past:
            past[message] = direct[message].union(*(before(earlier) for earlier in direct[message]))
        return past[message]

    found = 0
    for log in events:
        delivered = [event[1:] for event in log if event[0] == "d"]
        found += sum(1 for i, m in enumerate(delivered) if before(m) & set(delivered[i + 1 :]))
    return found


def test_a_shiviz_log_is_read_by_its_vector_clocks() -> None:
    verdict = judge_trace(shiviz.read(RECORDED / "shiviz.log"))
    assert outcome(verdict, "causal") == "fail"
    assert verdict.facts["nodes"] == 3


def test_a_log_in_other_words_is_read_by_an_expression_that_names_the_ids(tmp_path: Path) -> None:
    """In the form of a program that others have written: only some events are logged, and a message has no short id."""
    log = tmp_path / "broadcast.log"
    log.write_text(
        '[INFO] [node0] {"node0" : 3} Initiating RBBroadcast(DataMessage(1,a))\n'
        '[INFO] [node0] {"node0" : 9} Initiating RBBroadcast(DataMessage(2,b))\n'
        '[INFO] [node1] {"node0" : 4, "node1" : 2} Received SLDeliver(DataMessage(2,b)) from node0\n'
        '[INFO] [node1] {"node0" : 4, "node1" : 3} RBDeliver of message DataMessage(2,b) from node0\n'
        '[INFO] [node1] {"node0" : 4, "node1" : 7} RBDeliver of message DataMessage(1,a) from node0\n'
    )
    words = r"(?:Initiating RBBroadcast\((?<publish>.*)\)$|RBDeliver of message (?<deliver>\S+)|.*)"
    trace = shiviz.read(log, r"\[(?<host>node\d+)\] (?<clock>\{.*?\}) " + words)
    assert outcome(judge_trace(trace), "fifo") == "fail"
    with pytest.raises(TraceError, match="it needs the groups host, clock and event"):
        shiviz.read(log, r"(?<host>node\d+)\] (?<clock>\{.*?\})")


def test_a_trace_becomes_a_shiviz_log_and_back(tmp_path: Path) -> None:
    trace = cs451.read(RECORDED / "cs451")
    (tmp_path / "out.log").write_text("".join(shiviz.log_of(trace)))
    again = shiviz.read(tmp_path / "out.log")
    before, after = judge_trace(trace), judge_trace(again)
    assert [result.violations for result in after.results] == [result.violations for result in before.results]


def test_libp2p_events_have_subscriptions_and_promise_no_order() -> None:
    trace = libp2p.read(RECORDED / "libp2p.json")
    verdict = judge_trace(trace, complete=True, checks=PROMISED["libp2p"])
    assert outcome(verdict, "agreement") == "fail"  # One subscriber never got the second message.
    assert {result.check for result in verdict.results} == {"integrity", "agreement"}
    assert outcome(judge_trace(trace, checks=["fifo"]), "fifo") == "fail"


def test_a_history_of_sends_and_polls_is_judged_by_key() -> None:
    verdict = judge_trace(jepsen_kafka.read(RECORDED / "kafka.edn"))
    assert outcome(verdict, "total") == "fail"
    assert outcome(verdict, "integrity") == "pass"


def test_a_history_may_be_one_vector_of_tagged_operations(tmp_path: Path) -> None:
    lines = (RECORDED / "kafka.edn").read_text().splitlines()
    (tmp_path / "one.edn").write_text("[" + "\n ".join(f"#jepsen.history.Op{line}" for line in lines) + "]\n")
    one, several = (judge_trace(jepsen_kafka.read(path)) for path in (tmp_path / "one.edn", RECORDED / "kafka.edn"))
    assert [result.violations for result in one.results] == [result.violations for result in several.results]


def test_keys_that_are_keywords_are_topics_of_their_own(tmp_path: Path) -> None:
    """Two processes poll two keys in opposite orders, which no order of either key forbids."""
    sends = "[[:send :a [0 1]] [:send :b [0 2]]]"
    polls = ("[[:poll {:a [[0 1]]}] [:poll {:b [[0 2]]}]]", "[[:poll {:b [[0 2]]}] [:poll {:a [[0 1]]}]]")
    values = enumerate((sends, *polls))
    history = tmp_path / "keywords.edn"
    history.write_text("".join(f"{{:type :ok, :process {n}, :f :txn, :value {value}}}\n" for n, value in values))
    trace = jepsen_kafka.read(history)
    assert set(trace.table.column("topic").drop_null().to_pylist()) == {":a", ":b"}
    assert outcome(judge_trace(trace, checks=["total"]), "total") == "pass"


def test_histories_of_other_models_are_refused(tmp_path: Path) -> None:
    register = tmp_path / "register.edn"
    register.write_text("{:type :invoke, :process 0, :f :cas, :value [1 2], :index 0}\n")
    with pytest.raises(TraceError, match=r"line 1: :cas is of another model; only histories of sends and polls"):
        jepsen_kafka.read(register)


def test_messaging_spans_are_publications_and_deliveries() -> None:
    verdict = judge_trace(otel.read(RECORDED / "otel.json"), one_clock=True)
    assert outcome(verdict, "fifo") == "fail"
    assert verdict.facts["deliveries"] == 4


def test_spans_that_the_sdk_has_written_are_read_and_judged() -> None:
    """By examples/record_otel.py: OpenTelemetry's SDK 1.45.2 and its exporter of files."""
    verdict = judge_trace(otel.read(RECORDED / "otel-sdk.jsonl.gz"), complete=True)
    assert {check: outcome(verdict, check) for check in ("integrity", "agreement", "fifo")} == dict.fromkeys(
        ("integrity", "agreement", "fifo"), "pass"
    )
    assert verdict.facts[MADE] == 144


def test_a_clock_that_the_user_vouches_for_dates_deliveries() -> None:
    early = [
        {"node": "a", "seq": 0, "kind": "publish", "msg": "m", "topic": "t", "time_ns": 50},
        {"node": "b", "seq": 0, "kind": "deliver", "msg": "m", "time_ns": 20},
    ]
    trace = _loaded(early)
    assert outcome(judge_trace(trace), "integrity") == "pass"
    assert outcome(judge_trace(trace, one_clock=True), "integrity") == "fail"


def _loaded(rows: list[dict[str, object]]) -> LoadedTrace:
    import pyarrow as pa

    from ordercast.verify.load import LoadedTrace, normalised

    return LoadedTrace("rows", "r", None, normalised(pa.Table.from_pylist(rows), "rows"))


BROKEN: dict[str, tuple[Callable[[Path], LoadedTrace], str, str]] = {
    "a line of no form": (cs451.read, "b 1\nx 2\n", "line 2: 'x 2' is neither"),
    "a clock without its host": (shiviz.read, 'a {"b":1}\nsend\n', "lacks its own host a"),
    "a time twice": (shiviz.read, 'a {"a":2}\npublish m\na {"a":2}\npublish n\n', "two events of a have the time 2"),
    "no type": (libp2p.read, '{"type":77,"peerID":"p"}', "line 1: 77 is no type"),
    "a publication of nothing": (libp2p.read, '{"type":0,"peerID":"p"}', "without publishMessage"),
    "brackets that never close": (jepsen_kafka.read, "{:type :ok, :value [1", "not EDN: '\\[' is never closed"),
    "spans of nothing": (otel.read, '{"resourceSpans":[]}', "no messaging span"),
    "a list that is none": (otel.read, '{"resourceSpans":{}}', "resourceSpans is no list"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named_with_its_file(name: str, tmp_path: Path) -> None:
    read, text, said = BROKEN[name]
    file = tmp_path / "proc1.output"
    file.write_text(text)
    with pytest.raises(TraceError, match=said) as raised:
        read(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", FORMATS)
def test_no_importer_ends_with_anything_but_a_trace_or_a_line(name: str, tmp_path: Path) -> None:
    """Every recorded example, cut and changed in hundreds of places."""
    source = RECORDED / "cs451" / "proc02.output" if name == "cs451" else RECORDED / _EXAMPLES[name]
    content = source.read_bytes()
    file = tmp_path / "proc02.output"
    for seed in range(150):
        rng = random.Random(seed)
        changed = bytearray(content[: rng.randrange(len(content) + 1)] if seed % 3 == 0 else content)
        for _ in range(rng.randrange(1, 6)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.choice(b'{}[]":,0 \n\xff9a-')
        file.write_bytes(bytes(changed))
        said = ""
        try:
            judge_trace(import_trace(name, file), witnesses=1)
        except TraceError as error:
            said = str(error)
        assert "\n" not in said


_EXAMPLES = {"shiviz": "shiviz.log", "libp2p": "libp2p.json", "jepsen-kafka": "kafka.edn", "otel": "otel.json"}


def test_formats_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="unknown format 'avro'"):
        import_trace("avro", tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        import_trace("otel", tmp_path / "nothing")
