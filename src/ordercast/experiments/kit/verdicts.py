"""What the judge says of a run, as columns of the results, and what several verdicts say together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ordercast.experiments.kit.study import Row

if TYPE_CHECKING:
    from ordercast.verify.verdict import Verdict

HELD, VIOLATED, UNDECIDED = "held", "violated", "undecided"
_WORDS = {0: HELD, 1: VIOLATED, 4: UNDECIDED}


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
