"""The claim that every run held what its protocol promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ordercast.experiments.kit.study import GUARANTEES_HOLD, Claim, Row
from ordercast.experiments.kit.verdicts import HELD, VIOLATED
from ordercast.experiments.locamu.sources import OURS


def guarantees_hold(rows: Sequence[Row]) -> Claim:
    """Of the rows that were judged: closed forms, and runs that failed, have no verdict."""
    looked_at = [row for row in rows if row.get("judged") is not None]
    judged = Counter(row["judged"] for row in looked_at)
    broken = [f"{row['protocol']} ({row['failed_checks']}), configuration {row['id']}" for row in looked_at
              if row["judged"] == VIOLATED]  # fmt: skip
    measured = f"held in {judged[HELD]} of {len(looked_at)} judged runs"
    return Claim(
        id=GUARANTEES_HOLD,
        source=OURS,
        statement="Every run that was judged holds what its protocol promises: integrity, agreement and its order.",
        measured=f"{measured}; violated: {'; '.join(broken)}" if broken else measured,
        holds=False if broken else True if looked_at and judged[HELD] == len(looked_at) else None,
    )
