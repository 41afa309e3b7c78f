"""Two engines, one result: what the judge in one process and the one whose rows lie apart say of random traces.

python -m tests.support.engines [--seeds 5000] [--first 0]
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ordercast.verify.asked import JudgeOptions
from ordercast.verify.distributed.setup import TaskCut
from ordercast.verify.judge import judge_trace
from ordercast.verify.load import LoadedTrace, normalised
from ordercast.verify.verdict import CHECKS
from tests.support.flow import judge_apart
from tests.support.random_traces import draw, order_scope_of, said_of, table_of

if TYPE_CHECKING:
    from ordercast.verify.verdict import Verdict

_STRETCH_BYTES = (1, 300, 1000, 1 << 20)
"""From every message in a stretch of its own to all of them in one."""


def traced(rows: list[dict[str, Any]], about: Any = None) -> LoadedTrace:
    return LoadedTrace("random", "r", about, normalised(table_of(rows), "random"))


def both(seed: int) -> tuple[Verdict, Verdict] | None:
    """What the two engines say of the random trace of a seed; None if it is empty."""
    rows, about = draw(seed)
    if not rows:
        return None
    members, own = said_of(seed, about)
    asked: dict[str, Any] = {"order_scope": order_scope_of(seed), "members": members, "own_deliveries": own}
    asked |= {"complete": seed % 3 == 0, "checks": list(CHECKS) if seed % 4 else None}
    cut = TaskCut(1 + seed % 4, 1 + seed // 4 % 3, 1 + seed // 12 % 3, stretch_bytes=_STRETCH_BYTES[seed // 36 % 4])
    apart = judge_apart(traced(rows, about), JudgeOptions(**asked), cut, witnesses=3, as_files=seed % 2 == 1)
    return judge_trace(traced(rows, about), witnesses=3, **asked), apart


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    compared = 0
    different = []
    for seed in range(given.first, given.first + given.seeds):
        found = both(seed)
        compared += found is not None
        if found is not None and found[0] != found[1]:
            different.append(seed)
    print(f"{compared:,} traces compared, {len(different)} different: {different[:10]}")
    raise SystemExit(1 if different or not compared else 0)


if __name__ == "__main__":
    main()
