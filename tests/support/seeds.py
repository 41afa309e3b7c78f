"""Which seeds a swarm tries in the default suite: some that never change, and some that belong to the day."""

from __future__ import annotations

from datetime import UTC, datetime

_A_DAY = 10_000
"""Days do not share seeds, whatever number of them a swarm tries."""

TODAY = datetime.now(UTC).date()
"""Every worker of a parallel run collects within the same day, but for the moments around midnight."""


def fixed_and_todays(fixed: int, today: int) -> list[int]:
    """The first `fixed` seeds, then `today` seeds that belong to the date; a failure prints the seed to replay."""
    first = TODAY.toordinal() * _A_DAY
    return [*range(fixed), *range(first, first + today)]


def batches(fixed: int, today: int, size: int) -> list[list[int]]:
    """The same seeds in batches, one for each test case."""
    seeds = fixed_and_todays(fixed, today)
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def batch_name(seeds: list[int]) -> str:
    return f"seeds-{seeds[0]}-to-{seeds[-1]}"
