"""One run of the atomic multicast studies is what it says, and is measured from its trace alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.experiments.atomic_multicast import STUDIES, TCP_STUDY, runs, tcp
from ordercast.experiments.atomic_multicast.measures import measures
from ordercast.experiments.atomic_multicast.runs import (
    CONTIGUOUS,
    COVER,
    DCC,
    DCC_RV,
    DF,
    LITE,
    SKEEN,
    configuration,
    measure,
    scenario,
    server_names,
)
from ordercast.experiments.kit.study import Row
from ordercast.protocols import lookup
from ordercast.scenario.model import (
    ClosedLoad,
    Link,
    RandomTo,
    Scenario,
    Schedule,
    Servers,
    Slow,
    Step,
    Workload,
)
from ordercast.sim import simulate

MUTANTS = Path(__file__).parents[2] / "mutants" / "atomic_mutants.py"


def simulated(directory: Path, rule: str, *workload: Workload, faults: list[Slow] | None = None) -> Row:
    """Four servers without costs, links of exactly one millisecond."""
    made = Scenario(
        name="small",
        overlay=Servers(nodes=4, clients=1),
        workload=list(workload),
        options={"rule": rule},
        link=Link(latency_ms=1.0),
        duration_ms=1_000.0,
        fault=list(faults or []),
    )
    simulate(made, lookup("daisy-chain"), out=directory / "run")
    return measures(directory / "run", server_names(4))


def multicasts(*destinations: list[str]) -> Schedule:
    steps = [Step(node="c0", at_ms=100.0 * i, dst=dst) for i, dst in enumerate(destinations)]
    return Schedule(steps=steps)


def test_latency_is_the_time_from_a_request_to_its_answer(tmp_path: Path) -> None:
    result = simulated(
        tmp_path, "lite", ClosedLoad(publishers="clients", to=RandomTo(count=1), until="completed", limit=50)
    )
    assert [result[f"latency_ms_{name}"] for name in ("mean", "trimmed", "p50", "p99")] == [2.0] * 4
    assert result["throughput_per_s"] == 500.0
    assert result["completed"] == 39  # Of 49 completions that the next request shows, a fifth and one begin the window.


def test_the_trimmed_mean_leaves_out_what_is_rare_and_the_mean_does_not(tmp_path: Path) -> None:
    slow = [Slow(node=f"n{i}", at_ms=50.5, until_ms=51.5, extra_ms=30.0) for i in range(4)]
    load = ClosedLoad(publishers="clients", to=RandomTo(count=1), until="completed", limit=50)
    result = simulated(tmp_path, "lite", load, faults=slow)
    assert result["latency_ms_trimmed"] == 2.0
    assert float(result["latency_ms_mean"] or 0) == pytest.approx(2 + 30 / 39)


def test_hops_over_servers_in_between_are_fast_or_visits(tmp_path: Path) -> None:
    """The second message follows one with the same destinations, so it goes from n0 straight to n3."""
    result = simulated(tmp_path, "strict", multicasts(["n0", "n3"], ["n0", "n3"]))
    assert (result["gaps"], result["fast_share"]) == (2, 0.5)
    assert (result["visits_per_message"], result["visits_per_destination"]) == (1.0, 0.5)
    assert result["destinations_only_share"] == 0.5
    assert result["packets_per_message"] == (4 + 2) / 2


def test_a_message_to_one_server_is_no_multi_destination_message(tmp_path: Path) -> None:
    result = simulated(tmp_path, "strict", multicasts(["n0", "n2"], ["n3"]))
    assert result["destinations_only_share"] == 0.0
    assert (result["to_1"], result["to_2"], result["to_3"]) == (0.5, 0.5, 0.0)
    assert result["destinations_mean"] == 1.5


def test_a_run_too_short_for_a_window_has_no_pace(tmp_path: Path) -> None:
    result = simulated(tmp_path, "strict", multicasts(["n0"]))
    assert (result["completed"], result["throughput_per_s"], result["latency_ms_mean"]) == (None, None, None)


@pytest.mark.parametrize(("system", "packets", "fast"), [(SKEEN, 16.0, None), (DF, 7.0, 1.0)])
def test_genuine_protocols_take_exactly_their_packets_and_visit_nobody(
    system: str, packets: float, fast: float | None
) -> None:
    result = measure(configuration(system, "rand4", 4, messages=60))
    assert (result["packets_per_message"], result["visits_per_message"]) == (packets, 0.0)
    assert (result["fast_share"], result["destinations_only_share"]) == (fast, 1.0)
    assert (result["judged"], result["failed_checks"]) == ("held", "")


@pytest.mark.parametrize("system", [DCC, DCC_RV, LITE, COVER])
def test_contiguous_groups_leave_the_daisy_chain_nobody_to_visit(system: str) -> None:
    result = measure(configuration(system, "4x4", 4, messages=60, layout=CONTIGUOUS))
    assert (result["packets_per_message"], result["gaps"], result["fast_share"]) == (4.0, 0, None)
    assert result["judged"] == "held"


def test_one_client_does_as_many_requests_a_second_as_its_latency_allows() -> None:
    result = measure(configuration(DCC_RV, "rand2", 1, messages=60))
    per_s, latency_ms = float(result["throughput_per_s"] or 0), float(result["latency_ms_mean"] or 0)
    assert per_s * latency_ms == pytest.approx(1000)


def test_reduced_clocks_make_headers_smaller_and_change_no_destination() -> None:
    whole, reduced = (measure(configuration(system, "rand4", 8, messages=80)) for system in (DCC, DCC_RV))
    assert float(reduced["header_bytes_per_hop"] or 0) < float(whole["header_bytes_per_hop"] or 0)
    assert reduced["destinations_mean"] == whole["destinations_mean"] == 4.0


def test_a_run_depends_on_its_parameters_alone() -> None:
    row = configuration(LITE, "randN", 4, messages=60)
    assert measure(row) == measure(row)
    assert measure(row) != measure({**row, "seed": 1})


def test_a_run_whose_order_is_broken_is_measured_as_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runs.SYSTEMS, "mutant", (f"{MUTANTS}:NEVER_VISITS", {}))
    result = measure(configuration("mutant", "rand2", 32, messages=400))
    assert (result["judged"], result["failed_checks"]) == ("violated", "acyclic")


def test_only_servers_take_time() -> None:
    made = scenario(configuration(SKEEN, "tpcc", 8, messages=10, servers=4))
    assert [override.nodes for override in made.nodes] == [["n0", "n1", "n2", "n3"]]
    assert made.node.cpu is None


def test_every_configuration_of_every_scale_can_be_built() -> None:
    for study in STUDIES:
        build = tcp.scenario if study is TCP_STUDY else scenario
        for scale in study.scales:
            for found in study.configurations(scale):
                assert study.weigh(found.parameters) > 0
                assert build(found.parameters).seed == found.parameters["seed"]


def test_real_processes_are_measured_and_judged_like_simulated_ones() -> None:
    result = tcp.measure(tcp.configuration(SKEEN, "rand4", duration_ms=300.0, seed=0))
    assert (result["judged"], result["packets_per_message"]) == ("held", 16.0)
    assert float(result["throughput_per_s"] or 0) > 0
    assert float(result["latency_ms_mean"] or 0) > 0
