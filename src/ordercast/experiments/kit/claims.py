"""Verdicts of runs as columns of the results, and several verdicts summed up as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ordercast.experiments.kit.study import GUARANTEES_HOLD, OURS, Row, SourceClaim

if TYPE_CHECKING:
    from ordercast.verify.verdict import Verdict

HELD, VIOLATED, UNDECIDED = "held", "violated", "undecided"
_WORDS = {0: HELD, 1: VIOLATED, 4: UNDECIDED}
_EVERY_RUN = "Every run that was judged holds what its protocol promises: integrity, agreement and its order."


def judged(verdict: Verdict) -> Row:
    """The judge's word, and which checks failed."""
    failed = [result.check for result in verdict.results if result.verdict == "fail"]
    return {"judged": _WORDS[verdict.exit_code()], "failed_checks": ", ".join(failed)}


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """True if all are, False if one is; else it is not decided. Nothing at all decides nothing."""
    known = list(verdicts)
    if False in known:
        return False
    return None if None in known or not known else True


def guarantees_hold(rows: Sequence[Row], statement: str = _EVERY_RUN, *, what: str = "protocol") -> SourceClaim:
    """A claim that every run held its promise; `what`: the column that names a run. Closed forms have no verdict."""
    runs = [row for row in rows if row.get("judged") is not None]
    held = Counter(row["judged"] for row in runs)[HELD]
    broken = [row for row in runs if row["judged"] == VIOLATED]
    return SourceClaim(
        id=GUARANTEES_HOLD,
        source=OURS,
        statement=statement,
        measured=f"held in {held} of {len(runs)} runs{violations(broken, what)}",
        holds=False if broken else True if runs and held == len(runs) else None,
    )


def violations(broken: Sequence[Row], what: str = "protocol") -> str:
    """Which runs were violated, for the end of a sentence; nothing if none was."""
    named = [f"{row[what]} ({row['failed_checks']}), configuration {row['id']}" for row in broken]
    return f"; violated: {'; '.join(named)}" if named else ""
