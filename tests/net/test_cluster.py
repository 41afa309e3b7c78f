"""A run with real processes: who is asked what, and who waits for whom."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.nodes.state_log import StateLog, belongs_to
from ordercast.net.supervise.cluster import _Cluster, _direct
from ordercast.net.supervise.orders import Addresses, Assignment, WorkerAnswer, WorkerOrder
from ordercast.net.supervise.plan import RunPlan
from ordercast.net.supervise.process import Party, ProcessLayout
from ordercast.net.supervise.workers import Worker
from ordercast.protocols import lookup
from ordercast.scenario.model import Edges, LineGraph, OpenLoad, Scenario
from tests.support.loop import run_async

SCENARIO = Scenario(name="line", overlay=LineGraph(nodes=3), protocol="fifo", workload=[OpenLoad(rate_per_s=1)])
A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")


class Told:
    """Keeps what it is told, and answers unless it stands still."""

    def __init__(self, node: NodeId) -> None:
        self.nodes = [node]
        self.orders: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def ask(self, order: WorkerOrder) -> WorkerAnswer:
        await self.goes_on.wait()
        self.orders.append(order.do)
        return WorkerAnswer()

    def pause(self) -> None:
        self.goes_on.clear()

    def resume(self) -> None:
        self.goes_on.set()

    async def kill(self) -> None:
        """Nobody is there."""

    async def join(self) -> None:
        """Nobody is there."""

    async def lost(self) -> int:
        raise AssertionError


async def _never(_assignment: Assignment, _log: Path) -> tuple[Worker, Addresses]:
    raise AssertionError


def test_a_node_that_is_back_does_not_wait_for_one_that_stands_still(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = _Cluster(RunPlan(SCENARIO, lookup("fifo"), "fifo", 0), tmp_path, _never, _direct)
        back, paused, other = workers = [Told(node) for node in (A, B, C)]
        for worker in workers:
            cluster._workers[worker.nodes[0]] = worker
            cluster._addresses[worker.nodes[0]] = ("127.0.0.1", 1)
        paused.pause()
        async with asyncio.timeout(5):
            await cluster._introduce([A])
        assert back.orders == ["start", "go"]
        await asyncio.sleep(0)
        assert (paused.orders, other.orders) == ([], ["meet"])
        paused.resume()
        await asyncio.gather(*cluster._watches)
        assert paused.orders == ["meet"]

    run_async(main)


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_node_whose_name_no_file_can_have_is_refused_before_anything_starts(name: str) -> None:
    overlay = Edges(edges=[("a", "b"), ("b", name)])
    scenario = Scenario(name="odd", overlay=overlay, protocol="fifo", workload=[OpenLoad(rate_per_s=1)])
    with pytest.raises(UsageError, match=r"overlay: a process cannot be called"):
        RunPlan(scenario, lookup("fifo"), "fifo", 0)


def test_a_process_logs_how_much_of_a_state_was_torn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    info = lookup("fifo")
    layout = ProcessLayout(SCENARIO, info, 0)
    log = StateLog(tmp_path / A, belongs_to(layout.place(A, 0), info, layout.options))
    log.begin_life()
    log.close()
    with next((tmp_path / A).glob("*.log")).open("ab") as file:
        file.write(b"torn")
    assignment = Assignment(
        nodes=[A], scenario=SCENARIO, protocol="fifo", seed=0, cluster="c", token="00", life=1, epoch_ns=0,
        journals=str(tmp_path), settings=NodeSettings(), since=0, states=str(tmp_path),
    )  # fmt: skip

    async def main() -> None:
        with caplog.at_level(logging.WARNING):
            await Party(assignment, info).close()

    run_async(main)
    (record,) = (record for record in caplog.records if record.getMessage() == "torn tail cut off")
    assert record.facts == {"node": A, "file": str(log.log.path), "bytes": 4}  # type: ignore[attr-defined]
