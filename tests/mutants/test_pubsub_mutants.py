"""Every corrected rule of the broker system is needed: without it a pinned run goes wrong, with it the run holds."""

from __future__ import annotations

import pytest

from tests.mutants.folding_mutants import FOLDING_MUTANTS
from tests.mutants.pubsub_mutants import MUTANTS
from tests.properties.pubsub_swarm import try_seed

SOON_MS = 12_000.0
"""A broken run need not be watched for long."""
OTHERS = 60
"""Seeds to look at if the pinned one holds: any change of the packets moves every run."""
CAUGHT = [
    ("A1-history", 0, "slow-detection", "have not the same"),
    ("C6-outbox", 0, "one-key", "in the outbox"),
    ("W2-followers", 0, "filters", "agreement"),
    ("C9-again", 2, "fenced", "which nobody published"),
    ("C9-row", 0, "fenced", "agreement"),
    ("A2-confirmation", 0, "one-key", "agreement"),
    ("A2-confirmation", 2, "fenced", "missed by"),
    ("A3-all-members", 7, "one-key", "total"),
    ("A4-root-check", 14, "restart", "in a cycle"),
    ("A5-set-difference", 2, "client-crash", "not at rest"),
    ("A6-until-stable", 0, "joins", "have not the same"),
    ("A10-unanimous", 1, "one-key", "several roots"),
    ("A11-local-locks", 0, "calm", "fifo"),
    ("ST2-all-voted", 0, "one-key", "agreement"),
    ("PC-lease", 7, "primary-partitions", "several roots"),
    ("PC-waits", 39, "primary-partitions", "several roots"),
    ("F4-held", 5, "short-sessions-late", "safe"),
    ("F5-everybody", 0, "short-sessions-apart", "safe"),
    ("F6-away", 0, "short-sessions-alone", "agreement"),
    ("F7-closed-set", 4, "short-sessions-late", "safe"),
    ("F8-client", 0, "short-sessions", "safe"),
]


@pytest.mark.parametrize(("mutant", "seed", "family", "how"), CAUGHT, ids=[case[0] for case in CAUGHT])
def test_without_the_rule_the_run_goes_wrong_and_with_it_the_run_holds(
    mutant: str, seed: int, family: str, how: str
) -> None:
    caught = next((tried for tried in (seed, *range(OTHERS)) if goes_wrong(mutant, tried, family, how)), None)
    assert caught is not None, f"{mutant} survives {OTHERS} seeds of {family}"
    original = try_seed(caught, family)
    assert not isinstance(original, str), original
    assert original.problems == []


def goes_wrong(mutant: str, seed: int, family: str, how: str) -> bool:
    """Whether the run without the rule has a problem of that kind."""
    broken = try_seed(seed, family, {**MUTANTS, **FOLDING_MUTANTS}[mutant], SOON_MS)
    problems = [broken] if isinstance(broken, str) else broken.problems
    return any(how in problem for problem in problems)
