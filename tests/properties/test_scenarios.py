"""The library of scenarios: every one with every protocol it is made for, and the judge agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.scenario.load import load_scenario
from ordercast.sim import simulate
from ordercast.sim.catalogue import SIMULATED
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import Verdict

LIBRARY = Path(__file__).parents[2] / "scenarios"

GENERAL = ("flood", "fifo", "vector", "sequencer")
APPLICABLE = {
    "bandwidth": GENERAL,
    "burst": GENERAL,
    "calm": GENERAL,
    "causal-chain": GENERAL,
    "closed-loop": GENERAL,
    "cluster": ("cluster",),
    "crash": GENERAL,
    "crash-lost-state": ("flood", "fifo"),
    "false-suspicion": GENERAL,
    **{f"ginger-s{i}": ("broker",) for i in range(6)},
    "groups-subtrees": (*GENERAL, "locamu"),
    "groups-zipf": GENERAL,
    "locamu-faults": ("locamu",),
    "locamu-groups-change": ("locamu",),
    "locamu-join-leave": ("locamu",),
    "locamu-s-fence": ("locamu",),
    "locamu-s-gap": ("locamu",),
    "locamu-s-late": ("locamu",),
    "locamu-s-proxy": ("locamu",),
    "locamu-s-spider": ("locamu",),
    "locamu-s-zigzag": ("locamu",),
    "lossy": GENERAL,
    "multicast": ("skeen", "delporte-fauconnier", "daisy-chain"),
    "overlay-churn": ("preventive",),
    "partition": GENERAL,
    "reordering": GENERAL,
    "slow-node": GENERAL,
    "subscriptions-change": ("flood", "fifo"),
}
PAIRS = [(name, protocol) for name, protocols in APPLICABLE.items() for protocol in protocols]


def _judged(name: str, protocol: str, out: Path) -> Verdict:
    simulate(load_scenario(LIBRARY / f"{name}.toml"), SIMULATED[protocol], out=out)
    (verdict,) = judge_path(out)
    return verdict


def test_every_scenario_of_the_library_is_tested_and_says_what_it_is() -> None:
    files = {file.stem: load_scenario(file) for file in LIBRARY.glob("*.toml")}
    assert set(files) == set(APPLICABLE)
    for name, asked in files.items():
        assert asked.name == name
        assert len(asked.description) > 20
        assert asked.protocol in APPLICABLE[name]


@pytest.mark.parametrize(("name", "protocol"), PAIRS)
def test_the_promise_of_a_protocol_holds_in_every_scenario_it_is_made_for(
    name: str, protocol: str, tmp_path: Path
) -> None:
    verdict = _judged(name, protocol, tmp_path / "run")
    assert verdict.exit_code() == 0, (
        f"replay: ordercast simulate scenarios/{name}.toml --protocol {protocol}\n{verdict}"
    )


@pytest.mark.parametrize("name", ["reordering", "causal-chain"])
def test_a_protocol_without_order_is_caught(name: str, tmp_path: Path) -> None:
    assert _judged(name, "unordered", tmp_path / "run").exit_code() == 1
