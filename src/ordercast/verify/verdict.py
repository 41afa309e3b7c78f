"""Verdicts of the judge: per run and check the outcome, what was looked at, and the shortest story of a violation."""

from __future__ import annotations

import msgspec

CHECKS: tuple[str, ...] = (
    "integrity",
    "agreement",
    "fifo",
    "causal",
    "optimistic-causal",
    "total",
    "prefix",
    "acyclic",
    "convergence",
    "genuine",
    "total-topic",
    "real-time",
    "one-order",
)
ABOUT_TOTALS: tuple[str, ...] = ("total-topic", "real-time")
"""Checks on the total messages of a topic, whatever their keys."""
ONE_ORDER = "one-order"
"""The check on all messages of a topic: whoever skips some has the others in the same order as everybody."""
WITHOUT_PLACE: tuple[str, ...] = ("acyclic", "total-topic", ONE_ORDER)
"""Checks whose findings are messages that have no place in any one order; one cycle explains them all."""
ON_CLAIM: tuple[str, ...] = ("genuine", *ABOUT_TOTALS, ONE_ORDER)
"""Checks that no guarantee implies: for runs that claim them and callers that ask."""

PASS = "pass"  # noqa: S105 - a verdict, not a password
FAIL = "fail"
UNKNOWN = "unknown"
NOT_APPLICABLE = "not applicable"

ASSUMED = "assumed"
"""The fact that says what a trace left unsaid and the judge took for granted."""

OWED, MADE, MISSING, EXCUSED = "owed", "made", "missing", "excused"
"""Facts: deliveries that receivers owed; which they made, which are missing, which nobody can ask for any more."""
UNORDERED = "unordered"
"""The fact that says how many deliveries were left out of the optimistic order, where the trace says so."""

LOCAL, DISTRIBUTED = "local", "distributed"

HELD, VIOLATED, UNDECIDED = 0, 1, 4


class WitnessEvent(msgspec.Struct, frozen=True):
    """A step of a story: a node published or delivered a message, at that place of its own history."""

    node: str
    kind: str
    """`publish` or `deliver`."""
    message: str
    seq: int | None
    """None: it never did, and had to."""


class Witness(msgspec.Struct):
    """One violation as a story: who did what, at which place of its own history, and why that is wrong."""

    check: str
    node: str
    messages: list[str]
    story: list[str]
    events: list[WitnessEvent] = []
    """What the story tells of, and when its messages were published: enough to draw it."""
    wrong: str = ""
    """The message of which the delivery at `node`, or its absence, is what must not be."""


class CheckResult(msgspec.Struct):
    """One check's verdict. `deliveries` is how many it looked at: a pass over nothing is not a pass."""

    check: str
    verdict: str
    deliveries: int
    violations: int
    claimed: bool
    """The run claims it, or the caller asked for it: then an unknown is not good enough."""
    reason: str = ""
    witnesses: list[Witness] = []


class Verdict(msgspec.Struct):
    """All that the judge found out about one run."""

    run: str
    path: str
    protocol: str
    guarantee: str
    scope: str
    results: list[CheckResult]
    facts: dict[str, int | str]
    reason: str = ""
    """Why nothing could be judged, if so."""
    order_scope: str = "session"
    engine: str = LOCAL
    """Which engine judged: `local`, where one process has the whole run, or `distributed`."""

    def exit_code(self) -> int:
        """1 if a check failed, 4 if a claimed one is unknown or nothing could be judged, else 0."""
        verdicts = {result.verdict for result in self.results}
        if FAIL in verdicts:
            return VIOLATED
        if any(result.verdict == UNKNOWN and result.claimed for result in self.results):
            return UNDECIDED
        return HELD if PASS in verdicts else UNDECIDED
