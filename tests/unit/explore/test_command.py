"""`ordercast explore` prints what it found and exits with what it means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from ordercast.cli.exploring import explore
from ordercast.core.errors import UsageError
from ordercast.scenario.load import load_scenario

CYCLE = ["daisy-chain-published", "--nodes", "4", "--destinations", "0,2;0,2;0,3;2,3"]


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(explore)
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_scope_that_holds_is_a_table_and_a_verdict() -> None:
    result = run("delporte-fauconnier", "--nodes", "3", "--messages", "2", "--sizes-from", "1")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "delporte-fauconnier: holds in this scope"
    assert result.stdout.splitlines()[2].split() == ["2", "28", "400", "508", "50"]


def test_a_counterexample_is_told_step_by_step_and_replays(tmp_path: Path) -> None:
    path = tmp_path / "cycle.schedule.toml"

    found = run(*CYCLE, "-o", str(path))
    again = run("--replay", str(path))

    assert found.exit_code == again.exit_code == 1
    assert "violated: acyclic: a cycle of deliveries: m2 before m3 at n0" in found.stdout
    assert "  1. the client's Ask(m1) {n0,n2} reaches n0; n0 delivers m1" in found.stdout
    assert again.stdout.splitlines()[-1] in found.stdout
    assert f"replay: ordercast explore --replay {path}" in found.stderr


def test_every_faulty_configuration_is_listed_on_request_with_the_check_that_it_breaks() -> None:
    options = ["--set", "first=fast", "--set", "check_invariants=false"]

    result = run("daisy-chain-published", "--nodes", "4", "--messages", "3", "--ascending", "--all", *options)

    assert result.exit_code == 1
    assert "configurations can go wrong:" in result.stdout
    assert "  m1{n0,n2} m2{n2,n3} m3{n0,n1,n3}: acyclic" in result.stdout.splitlines()


def test_a_limit_is_told_with_the_size_of_the_scope() -> None:
    result = run("delporte-fauconnier", "--nodes", "4", "--messages", "3", "--limit-states", "300")

    assert result.exit_code == 4
    assert "not decided within the limit" in result.stdout
    assert "of 363 configurations" in result.stdout


def test_results_for_machines_are_json() -> None:
    holds = json.loads(run("daisy-chain", "--set", "rule=strict", "--json").stdout)
    broken = json.loads(run(*CYCLE, "--json").stdout)

    assert holds["verdict"] == "holds"
    assert [size["configurations"] for size in holds["result"]["sizes"]] == [4, 10]
    assert broken["result"]["counterexample"]["violation"]["check"] == "acyclic"


def test_a_schedule_without_violation_exits_zero(tmp_path: Path) -> None:
    path = tmp_path / "calm.schedule.toml"
    path.write_text('protocol = "skeen"\nnodes = 1\ndestinations = [["n0"]]\nsteps = ["c1 -> n0"]\n')

    result = run("--replay", str(path))

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == ["delivered: n0: m1", "no violation"]


def test_a_replay_that_ends_differently_than_recorded_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cycle.schedule.toml"
    run(*CYCLE, "-o", str(path))
    path.write_text(path.read_text().replace('"n2 -> n3",  # n2 -> n3: CheckedHop(m4)', '# "n2 -> n3"'))

    result = run("--replay", str(path))

    assert result.exit_code == 0
    assert "recorded with another end: a cycle of deliveries" in result.stderr


def test_a_counterexample_is_written_as_a_scenario_on_request(tmp_path: Path) -> None:
    path = tmp_path / "cycle.toml"

    result = run(*CYCLE, "--scenario", str(path))

    assert load_scenario(path).protocol == "daisy-chain-published"
    assert f"simulate: ordercast simulate {path}" in result.stderr


SPIDER = [
    *("--edges", "0-1,1-2,2-3,3-4,2-5", "--groups", "a:4,5;b:4", "--publish", "0>a, 5>b after m1", "--set", "f=2"),
    *("--overtaking", "--toggle", "0:1,2", "--toggle", "5:2,3 stays", "--without", "Ack", "--losses", "1"),
]


def test_a_tree_is_told_edge_by_edge_and_its_counterexample_replays(tmp_path: Path) -> None:
    path = tmp_path / "spider.schedule.toml"

    found = run("locamu-published", *SPIDER, "-o", str(path))
    again = run("--replay", str(path))

    assert found.exit_code == again.exit_code == 1
    assert "smallest configuration: m1@n0>a m2@n5>b" in found.stdout
    assert "    1. n0 suspects n1 and n2; nothing comes of it yet" in found.stdout
    assert again.stdout.splitlines()[-1] in found.stdout
    assert "no scenario" in run("locamu-published", *SPIDER, "--scenario", str(tmp_path / "s.toml")).stderr


def test_a_tree_protocol_is_explored_on_a_line_unless_told_otherwise() -> None:
    result = run("locamu", "--overtaking", "--messages", "1", "--suspicions", "1", "--idle-at-once")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "locamu: holds in this scope"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "PROTOCOL"),
        (["locamu", "--edges", "0-1-2"], "edges: '0-1-2'"),
        (["locamu", "--edges", "0-2"], "edges: .* no edge leads to 1"),
        (["locamu", "--groups", "a"], "groups: 'a'"),
        (["locamu", "--groups", "a:1;a:2"], "groups: 'a' is there twice"),
        (["locamu", "--publish", "0-a"], "publications: '0-a'"),
        (["locamu", "--toggle", "01"], "toggles: '01'"),
        (["locamu", "--overlay", "torus"], "overlay"),
        (["skeen", "--suspicions", "1"], "come from clients"),
        (["skin"], "did you mean 'skeen'"),
        (["skeen", "--set", "rule=x"], "rule"),
        (["skeen", "--destinations", "0,9"], "destinations: '9'"),
        (["flood", "--publishers", "0,9"], "publishers: '9'"),
        (["skeen", "--sizes-from", "9"], "sizes_from"),
        (["delporte-fauconnier", "--ascending"], "sends downwards"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        run(*arguments)
