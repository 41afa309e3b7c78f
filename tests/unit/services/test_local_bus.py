"""The local bus allows what the guarantees allow, and nothing else; bank replicas on it agree."""

from __future__ import annotations

import pytest

from ordercast.services.bank_checks import ReplicaHistory, bank_violations
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.local_bus import LocalHub
from tests.support.bank_lab import BankNode, rest, run_workload
from tests.support.loop import run_async


def _run(seed: int, workload: BankWorkload, scope: str = "session") -> tuple[list[ReplicaHistory], list[list[str]]]:
    async def main() -> tuple[list[ReplicaHistory], list[list[str]]]:
        hub = LocalHub(seed=seed, order_scope=scope)
        nodes = [BankNode(hub.connect(name)) for name in ("ann", "bob", "cho")]
        async with nodes[0].node, nodes[1].node, nodes[2].node:
            await run_workload(nodes, workload, wait=seed % 2 == 1)
            await rest(hub)
            digests = {node.node.replica.digest(topic) for node in nodes for topic in node.node.topics}
            assert len(digests) == 1
            return [node.history() for node in nodes], [node.order for node in nodes]

    return run_async(main)


@pytest.mark.parametrize("scope", ["session", "key"])
def test_replicas_agree_under_every_interleaving_that_the_guarantees_allow(scope: str) -> None:
    refusals, orders_differed = 0, 0
    for seed in range(12):
        histories, orders = _run(seed, BankWorkload(accounts=3, operations=25, seed=seed), scope)
        assert bank_violations(histories) == [], f"seed {seed}"
        refusals += sum(step.refused is not None for step in histories[0].steps)
        orders_differed += orders[0] != orders[1]
    assert refusals > 30
    assert orders_differed > 6


def test_the_checks_are_needed_without_synchronisation_points_replicas_decide_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same workload on a bus that keeps only the order of each publisher: the bank checks see it."""
    monkeypatch.setattr(LocalHub, "_comes_before", _no_barrier)
    found: list[str] = []
    for seed in range(0, 12, 2):
        try:
            histories, _ = _run(seed, BankWorkload(accounts=2, operations=40, seed=seed))
        except AssertionError:
            found.append("digests")
            continue
        found += bank_violations(histories)
    assert found


def _no_barrier(self: LocalHub, earlier: object, new: object, publisher: object) -> bool:
    return bool(earlier.origin == new.origin)  # type: ignore[attr-defined]
