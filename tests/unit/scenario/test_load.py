"""Scenario files: what is right is read, what is wrong is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.scenario import model, tables
from ordercast.scenario.load import apply_override, dump_scenario, load_scenario, parse_scenario
from ordercast.scenario.model import Scenario

BASE: dict[str, Any] = {
    "name": "base",
    "overlay": {"kind": "tree", "nodes": 7},
    "workload": [{"kind": "open", "rate_per_s": 10.0}],
}
STEPS = {"kind": "schedule", "steps": [{"node": "n0", "at_ms": 1}]}


def test_what_is_not_said_has_its_default() -> None:
    asked = parse_scenario(BASE)
    assert asked.link == model.Link(latency_ms=5.0, fifo=True, loss=0.0, duplicate=0.0)
    assert (asked.protocol, asked.seed, asked.duration_ms, asked.groups) == ("flood", 0, 1000.0, model.Everyone())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"nmae": "x"}, "top level: unknown key 'nmae'; did you mean 'name'?"),
        ({"overlay": {"kind": "tre", "nodes": 3}}, "overlay.kind: unknown kind 'tre'; did you mean 'tree'?"),
        ({"overlay": {"kind": "tree", "node": 3}}, "overlay: unknown key 'node'; did you mean 'nodes'?"),
        ({"overlay": {"kind": "tree"}}, "overlay: object missing required field `nodes`"),
        ({"overlay": {"nodes": 3}}, "overlay: object missing required field `kind`"),
        ({"overlay": {"kind": "tree", "nodes": "3"}}, "overlay.nodes: expected `int`, got `str`"),
        ({"overlay": 3}, "overlay: expected `object`, got `int`"),
        ({"workload": {}}, "workload: expected `array`, got `object`"),
        (
            {"workload": [BASE["workload"][0], {"kind": "opn"}]},
            "workload[1].kind: unknown kind 'opn'; did you mean 'open'?",
        ),
        (
            {"workload": [{"kind": "open", "rate_per_s": 1, "arrival": "poison"}]},
            "workload[0].arrival: unknown choice 'poison'; did you mean 'poisson'?",
        ),
        (
            {"workload": [{"kind": "open", "rate_per_s": 1, "publishers": "al"}]},
            "workload[0].publishers: unknown choice 'al'; did you mean 'all'?",
        ),
        (
            {"workload": [{"kind": "open", "rate": 1}]},
            "workload[0]: unknown key 'rate'; did you mean 'rate_per_s'?",
        ),
        (
            {"workload": [STEPS, {"kind": "schedule", "steps": [STEPS["steps"][0], {"nod": "n0"}]}]},
            "workload[1].steps[1]: unknown key 'nod'; did you mean 'node'?",
        ),
        (
            {"workload": [{"kind": "schedule", "steps": [{"node": "n0", "do": "pub"}]}]},
            "workload[0].steps[0].do: unknown choice 'pub'; did you mean 'publish'?",
        ),
        (
            {"link": {"latency_ms": {"kind": "unifrom"}}},
            "link.latency_ms.kind: unknown kind 'unifrom'; did you mean 'uniform'?",
        ),
        ({"link": {"latency_ms": "5"}}, "link.latency_ms: expected `float | object`, got `str`"),
        ({"links": [{"between": ["n0"]}]}, "links[0].between: expected `array` of length 2, got 1"),
        ({"fault": [{"kind": "crush"}]}, "fault[0].kind: unknown kind 'crush'; did you mean 'crash'?"),
        (
            {"fault": [{"kind": "crash", "node": "n0", "at_ms": 1, "state": "keep"}]},
            "fault[0].state: unknown choice 'keep'; did you mean 'kept'?",
        ),
        ({"trace": {"record": "everything"}}, "trace.record: unknown choice 'everything'; known: all, app"),
        ({"groups": {"kind": "explicit", "members": {"a": [1]}}}, "groups.members[...][0]: expected `str`, got `int`"),
        ({"seed": 1.5}, "seed: expected `int`, got `float`"),
        ({"duration_ms": float("nan")}, "duration_ms: nan is not a finite number"),
        (
            {"workload": [{"kind": "open", "rate_per_s": float("inf")}]},
            "workload[0].rate_per_s: inf is not a finite number",
        ),
        ({"duration_ms": 1e13}, "duration_ms: 10000000000000.0 is too large a number (1e+12 is the largest)"),
        ({"options": {"ack_ms": -(2**60)}}, f"options.ack_ms: {-(2**60)} is too large a number (1e+12 is the largest)"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_field_and_the_nearest_valid_name(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario({**BASE, **changes})
    assert str(caught.value) == complaint


def test_a_seed_may_be_as_large_as_it_likes() -> None:
    assert parse_scenario({**BASE, "seed": 2**62}).seed == 2**62


def test_a_missing_field_of_the_top_level_is_named() -> None:
    with pytest.raises(UsageError, match="top level: object missing required field `workload`"):
        parse_scenario({"name": "x", "overlay": BASE["overlay"]})


# --- files ---


def test_a_file_with_overrides_is_read(tmp_path: Path) -> None:
    file = tmp_path / "calm.toml"
    file.write_text(dump_scenario(parse_scenario(BASE)))
    assert load_scenario(file) == parse_scenario(BASE)
    assert load_scenario(file, ["seed=4", "overlay.nodes=9"]).seed == 4


def test_an_overlay_file_is_looked_up_next_to_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name="s"\nworkload=[]\n[overlay]\nkind="edges"\nfile="graph.txt"\n')
    overlay = load_scenario(file).overlay
    assert isinstance(overlay, model.Edges)
    assert Path(overlay.file) == tmp_path / "graph.txt"


def test_every_problem_of_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("name = ")
    (tmp_path / "wrong.toml").write_text('name="x"\noverlay=1\nworkload=[]\n')
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name, complaint in {
        "broken.toml": "not valid TOML: ",
        "wrong.toml": "overlay: expected `object`, got `int`",
        "binary.toml": "cannot be read: ",
        "brokn.toml": "unknown scenario file 'brokn.toml'; did you mean 'broken.toml'?",
    }.items():
        with pytest.raises(UsageError) as caught:
            load_scenario(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {complaint}")
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no such scenario file"):
        load_scenario(tmp_path / "nowhere" / "x.toml")


# --- overrides ---


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=7", ("seed",), 7),
        (" seed =7", ("seed",), 7),
        ("overlay.nodes=15", ("overlay", "nodes"), 15),
        ("workload.0.rate_per_s=2.5", ("workload", 0, "rate_per_s"), 2.5),
        ("link.latency_ms={kind='uniform', low_ms=1, high_ms=2}", ("link", "latency_ms", "high_ms"), 2),
        ("link.fifo=false", ("link", "fifo"), False),
        ("workload.0={kind='burst', size=1, every_ms=5}", ("workload", 0, "kind"), "burst"),
        ("protocol=fifo", ("protocol",), "fifo"),
        ("protocol='fifo'", ("protocol",), "fifo"),
        ("description=a=b", ("description",), "a=b"),
        ("workload.0.publishers=['n1', 'n2']", ("workload", 0, "publishers", 1), "n2"),
    ],
)
def test_an_override_sets_one_value_of_its_toml_type(override: str, path: tuple[Any, ...], value: object) -> None:
    raw = tomllib.loads(dump_scenario(parse_scenario(BASE)))
    apply_override(raw, override)
    found: Any = raw
    for part in path:
        found = found[part]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("seed", "--set 'seed': expected key=value"),
        ("=7", "--set '=7': expected key=value"),
        ("name.x=1", "--set 'name.x=1': 'name' is not a table"),
        ("workload.3.kind=open", "--set 'workload.3.kind=open': '3' is not an index of a list of 1"),
        ("workload.x=1", "--set 'workload.x=1': 'x' is not an index of a list of 1"),
        ("workload.0.publishers.0.x=1", "--set 'workload.0.publishers.0.x=1': '0' is not a table"),
    ],
)
def test_a_bad_override_is_named(override: str, complaint: str) -> None:
    raw = {**BASE, "workload": [{"kind": "open", "rate_per_s": 1.0, "publishers": ["n0"]}]}
    with pytest.raises(UsageError) as caught:
        apply_override(raw, override)
    assert str(caught.value) == complaint


def test_an_override_of_the_wrong_type_is_caught_with_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(dump_scenario(parse_scenario(BASE)))
    with pytest.raises(UsageError, match="duration_ms: expected `float`, got `str`"):
        load_scenario(file, ["duration_ms=long"])


# --- round trip ---

finite = st.floats(0, 1e6, allow_nan=False)
numbers = st.integers(-(10**12), 10**12)
names = st.text(max_size=6)
latencies = st.one_of(
    finite,
    st.builds(tables.Uniform, low_ms=finite, high_ms=finite),
    st.builds(tables.Exponential, mean_ms=finite, min_ms=finite),
    st.builds(tables.LogNormal, median_ms=finite, sigma=finite),
)
steps = st.builds(
    model.Step,
    node=names,
    do=st.sampled_from(["publish", "subscribe", "unsubscribe"]),
    at_ms=st.none() | finite,
    after=st.none() | names,
    topic=st.none() | names,
    dst=st.lists(names, max_size=2),
    keys=st.lists(names, max_size=2),
)
loads = st.one_of(
    st.builds(model.OpenLoad, rate_per_s=finite, publishers=st.just("all") | st.lists(names, max_size=2)),
    st.builds(
        model.ClosedLoad,
        guarantee=names | st.dictionaries(names, finite, max_size=2),
        limit=st.none() | st.integers(1, 9),
    ),
    st.builds(model.BurstLoad, size=st.integers(1, 9), every_ms=finite),
    st.builds(model.ReplyLoad, probability=finite),
    st.builds(model.Schedule, steps=st.lists(steps, max_size=3)),
)
faults = st.one_of(
    st.builds(
        model.Crash, node=names, at_ms=finite, recover_ms=st.none() | finite, state=st.sampled_from(["kept", "lost"])
    ),
    st.builds(model.Pause, node=names, at_ms=finite, until_ms=finite),
    st.builds(model.Partition, sides=st.tuples(st.lists(names), st.lists(names)), at_ms=finite, until_ms=finite),
    st.builds(model.Suspicion, node=names, at_ms=finite, until_ms=finite, by=st.none() | names),
)
link_overrides = st.builds(model.LinkOverride, between=st.tuples(names, names), latency_ms=st.none() | latencies)
cpus = st.none() | st.builds(model.Cpu, per_send_us=finite)
node_overrides = st.builds(model.NodeOverride, nodes=st.lists(names, max_size=2), cpu=cpus)
scenarios = st.builds(
    Scenario,
    name=st.text(),
    description=st.text(),
    overlay=st.one_of(
        st.builds(model.Tree, nodes=numbers, branching=numbers),
        st.builds(model.Edges, edges=st.lists(st.tuples(names, names), max_size=3), tree=st.booleans()),
    ),
    workload=st.lists(loads, max_size=3),
    fault=st.lists(faults, max_size=3),
    groups=st.one_of(
        st.builds(model.Everyone, topics=numbers),
        st.builds(model.Explicit, members=st.dictionaries(names, st.lists(names, max_size=2), max_size=2)),
    ),
    link=st.builds(model.Link, latency_ms=latencies, fifo=st.booleans()),
    links=st.lists(link_overrides, max_size=2),
    nodes=st.lists(node_overrides, max_size=2),
    options=st.dictionaries(names, st.one_of(numbers, st.booleans(), names), max_size=2),
    seed=st.integers(-(2**62), 2**62),
)


@given(scenarios)
@settings(max_examples=80)
def test_a_dumped_scenario_is_read_back_as_it_was(asked: Scenario) -> None:
    assert parse_scenario(tomllib.loads(dump_scenario(asked))) == asked


def test_what_is_at_its_default_is_not_dumped() -> None:
    assert dump_scenario(parse_scenario(BASE)).count("\n") < 30
    assert "drain_ms" not in dump_scenario(parse_scenario(BASE))


def test_a_date_is_refused_by_the_name_of_its_field() -> None:
    raw = tomllib.loads("[options]\nsince = 2026-11-17")
    with pytest.raises(UsageError, match=r"^options\.since: 2026-11-17 is a date or a time"):
        parse_scenario(raw)
