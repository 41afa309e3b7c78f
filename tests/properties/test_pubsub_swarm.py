"""Brokers and clients under every kind of fault that they say they survive; `make swarm` runs many more seeds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId
from tests.properties.pubsub_swarm import FAMILIES, try_seed
from tests.support.seeds import fixed_and_todays

SEEDS = fixed_and_todays(6, 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_guarantee_holds_and_the_system_comes_to_rest(family: str) -> None:
    for seed in SEEDS:
        finding = try_seed(seed, family)
        problems = [finding] if isinstance(finding, str) else finding.problems
        again = f"again: python -m tests.properties.pubsub_swarm --seeds 1 --first {seed} --family {family}"
        assert not problems, f"{again}\n{problems}"


@pytest.mark.parametrize("family", ["restart-with-disk", "broker-leaves", "primary-cuts", "short-sessions-cut"])
def test_every_guarantee_holds_where_topics_are_looked_at_one_by_one(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BRK-L7: no order of looking at topics, and no pause in between, breaks a promise."""
    monkeypatch.setattr(Topics, "portion", 1)
    for seed in fixed_and_todays(1, 1):
        finding = try_seed(seed, family)
        problems = [finding] if isinstance(finding, str) else finding.problems
        again = (
            f"again: python -m tests.properties.pubsub_swarm --one-by-one --seeds 1 --first {seed} --family {family}"
        )
        assert not problems, f"{again}\n{problems}"


def test_clients_that_are_away_for_too_long_lose_their_sessions_with_full_outboxes() -> None:
    findings = [finding for seed in range(6) if not isinstance(finding := try_seed(seed, "fenced"), str)]
    lost = [row for finding in findings for row in finding.rows if "leave" in row and "lost" in str(row)]
    outboxes = [client.disk.unanswered for finding in findings for client in finding.world.clients.values()]
    assert len(lost) >= 6
    assert sum(map(len, outboxes)) >= 6


def test_a_run_is_not_at_rest_before_a_follower_that_is_back_has_an_edge_and_its_topics() -> None:
    """It is a member of no topic yet, so nothing else in the world says that something is still to come."""
    finding = try_seed(920055, "filters-and-cuts")
    assert not isinstance(finding, str)
    assert finding.held, finding.problems
    assert finding.world.clients[NodeId("c1")].delivered == finding.world.clients[NodeId("c0")].published > 0


WENT_WRONG = [
    # Its follower crashes between the answer to the filter and the first subscription to a topic that it found.
    pytest.param("filters-and-cuts", 920_343, id="a filter owes topics that were there from their subscription on"),
    # A session may be lost only to those who were away for longer than that, counted until they notice.
    pytest.param("short-sessions-cut", 11_001_410, id="who is cut off by its edge's partition may be away for longer"),
    # Both brokers that had it died before anybody else was connected again.
    pytest.param(
        "short-sessions", 11_001_261, id="what died with all its copies at once is not missed for being folded"
    ),
    # BRK-M10: the third root restarts while the second one counts, and is elected before anybody has told it.
    pytest.param(
        "absent-through-elections",
        11_000_136,
        id="a root that was away itself learns how long a member has been absent",
    ),
    # BRK-M8
    pytest.param("nobody-waits-for-the-dead", 11_000_916, id="nobody waits for a client that died while it joined"),
    # BRK-M8: the root had recorded it at the edge that it died at, and no edge answered for it any more.
    pytest.param(
        "nobody-waits-for-the-dead", 20_000_405, id="nobody waits for a follower that died while it joined a topic"
    ),
    pytest.param(
        "nobody-waits-for-the-returned", 116, id="nobody waits for a member that died before it was confirmed again"
    ),
    # It had asked again for a topic that it was leaving, and was confirmed when its connection was gone.
    pytest.param("liar", 100_000_867, id="who asks again while it leaves and then goes does not stop its broker"),
    # BRK-M8, BRK-W2
    pytest.param(
        "filters-and-cuts",
        11_001_118,
        id="a follower that dies while it joins a topic of its filter is owed it all the same",
    ),
    # The log on disk had the second of a publisher, prepared, before the first, which was committed after that.
    pytest.param(
        "restart-with-disk",
        11_001_315,
        id="totals that are prepared stay behind those that are committed through a restart",
    ),
    # BRK-M10, BRK-F2: its edge had heard of it, and the root never would have: it was remembered for ever.
    pytest.param(
        "short-sessions-late",
        11_001_648,
        id="the end of a session that too few brokers had recorded is recorded after all",
    ),
    # BRK-M10
    pytest.param(
        "restart-with-disk", 11_000_404, id="electors who agree on nobody that is absent from a topic name nobody"
    ),
    # It dies together with its edge; a publication on another topic had got out before.
    pytest.param(
        "sealed",
        11_000_058,
        id="what a dead client had of one topic is not owed because of what it published on another",
    ),
    # BRK-M11: its edge and the root die one after the other, and only the edge had called its publications taken.
    pytest.param("client-leaves", 11_000_262, id="who unsubscribes keeps what it published until it is safe"),
]
"""Runs that broke a promise once, by the promise."""


@pytest.mark.parametrize(("family", "seed"), WENT_WRONG)
def test_what_went_wrong_once_holds(family: str, seed: int) -> None:
    finding = try_seed(seed, family)
    assert not isinstance(finding, str), finding
    assert finding.held, finding.problems


def test_the_same_seed_gives_the_same_trace_under_every_hash_seed() -> None:
    script = (
        "from tests.properties.pubsub_swarm import swarm_scenario\n"
        "from tests.support.pubsub_lab import run_pubsub\n"
        "for family in ('joins-and-everything', 'primary-everything'):\n"
        "    print(run_pubsub(swarm_scenario(3, family), judge=False).rows)\n"
    )
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], cwd=root, check=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert hashlib.sha256(runs[0]).hexdigest() == hashlib.sha256(runs[1]).hexdigest()
    assert len(runs[0]) > 10_000
