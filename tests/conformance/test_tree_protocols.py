"""Protocols for trees keep their promises in the simulator and over TCP, where connections are cut again and again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.overlay.groups import build_groups
from ordercast.protocols import CATALOGUE
from ordercast.scenario.model import Explicit, Scenario, Tree
from tests.conformance.test_protocols import WRONG, check, scenario
from tests.support.tree_over_tcp import BASE, with_links

ON_TREES = sorted(name for name, info in CATALOGUE.items() if info.reach is not None and name not in WRONG)
OVERLAPPING = Explicit(members={"all": list(BASE.nodes), "low": ["n3", "n4", "n5", "n6"], "left": ["n1", "n3", "n4"]})


def put_on(runtime: str, value: Scenario) -> Scenario:
    return with_links(value) if runtime == "tcp" else value


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("protocol", ON_TREES)
def test_a_tree_keeps_what_the_protocol_promises(protocol: str, runtime: str, tmp_path: Path) -> None:
    check(put_on(runtime, scenario(protocol, Tree(nodes=7))), runtime, tmp_path / "run")


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("protocol", ON_TREES)
def test_overlapping_groups_and_publishers_outside_them(protocol: str, runtime: str, tmp_path: Path) -> None:
    value = scenario(protocol, Tree(nodes=7))
    loads = [msgspec.structs.replace(load, topics="any") for load in value.workload]
    value = msgspec.structs.replace(value, groups=OVERLAPPING, workload=loads)
    assert set(build_groups(OVERLAPPING, BASE, 0)) == {"all", "low", "left"}
    check(put_on(runtime, value), runtime, tmp_path / "run")
