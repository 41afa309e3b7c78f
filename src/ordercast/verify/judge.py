"""Judge traces in this process: prepare a run's columns, run its tasks, merge what they found into a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.verify.asked import JudgeOptions
from ordercast.verify.build import prepare
from ordercast.verify.load import LoadedTrace, load, normalised, split_runs
from ordercast.verify.tasks import Partial, merge, plan, run_task
from ordercast.verify.verdict import CHECKS, FAIL, NOT_APPLICABLE, ON_CLAIM, PASS, UNKNOWN, CheckResult, Verdict
from ordercast.verify.witness import witnesses as stories_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from ordercast.trace.store import Manifest
    from ordercast.verify.columns import Columns, RunFacts
    from ordercast.verify.verdict import Witness

    Tell = Callable[[str, list[tuple[int, ...]]], list[Witness]]

__all__ = ["CHECKS", "conclude", "judge_path", "judge_table", "judge_trace"]

WITNESSES = 5


def judge_path(path: Path | str, *, witnesses: int = WITNESSES, **asked: Any) -> list[Verdict]:
    """A verdict for every run in `path`: a run directory, a directory of them, or an event file.

    `asked` are the fields of `JudgeOptions`: which checks and scopes the caller wants, and what it says of the trace.
    """
    return [judge_trace(trace, witnesses=witnesses, **asked) for trace in load(Path(path))]


def judge_table(
    table: pa.Table, manifest: Manifest | None, *, witnesses: int = WITNESSES, name: str = "table", **asked: Any
) -> list[Verdict]:
    """A verdict for every run in an Arrow table of events; `name` stands for its path."""
    whole = normalised(table, name)
    traces = [LoadedTrace(name, manifest.run_id, manifest, whole)] if manifest else split_runs(whole, Path(name))
    return [judge_trace(trace, witnesses=witnesses, **asked) for trace in traces]


def judge_trace(trace: LoadedTrace, *, witnesses: int = WITNESSES, block: int | None = None, **asked: Any) -> Verdict:
    """The verdict on one run. It does not depend on `block`, how many receivers or keys one task takes."""
    columns = prepare(trace, JudgeOptions(**asked))
    partials = [run_task(columns, task, cap=witnesses) for task in plan(columns, block=block)]
    return conclude(columns, partials, witnesses=witnesses)


def conclude(columns: Columns, partials: list[Partial], *, witnesses: int = WITNESSES) -> Verdict:
    """Merge what the tasks of one run found."""

    def tell(check: str, findings: list[tuple[int, ...]]) -> list[Witness]:
        return stories_of(columns, check, findings)

    return verdict_of(columns.about, merge(partials, cap=witnesses), tell, witnesses=witnesses)


def verdict_of(about: RunFacts, merged: dict[str, Partial], tell: Tell, *, witnesses: int = WITNESSES) -> Verdict:
    """The verdict from what was found, with the stories that `tell` makes of findings."""
    found = [merged.get(check, Partial(check, 0, 0, [])) for check in about.checks]
    results = [_result(about, part, tell, witnesses) for part in found]
    judged = any(result.verdict in (PASS, FAIL) for result in results)
    return Verdict(
        run=about.run,
        path=about.path,
        protocol=about.protocol,
        guarantee=about.guarantee,
        scope=about.scope,
        order_scope=about.order_scope,
        results=results,
        facts=about.facts,
        reason="" if judged else _why_nothing(about, results),
    )


def is_told(about: RunFacts, found: Partial) -> bool:
    """Whether what was found is a violation, whose story is told."""
    return found.violations > 0 and _undecided(about, found.check, found) is None


def _result(about: RunFacts, found: Partial, tell: Tell, witnesses: int) -> CheckResult:
    check = found.check
    claimed = check in about.claimed
    undecided = _undecided(about, check, found)
    if undecided is not None:
        verdict, reason = undecided
        return CheckResult(check, verdict, found.deliveries, 0, claimed, reason)
    verdict = FAIL if found.violations else PASS
    stories = _different_first(tell(check, found.findings))[:witnesses]
    return CheckResult(check, verdict, found.deliveries, found.violations, claimed, "", stories)


def _different_first(stories: list[Witness]) -> list[Witness]:
    """One story for each node and message that it let be overtaken, then the others."""
    first = {(story.node, *story.messages[:1]): n for n, story in reversed(list(enumerate(stories)))}
    return [story for _, story in sorted(enumerate(stories), key=lambda told: (told[0] not in first.values(), told[0]))]


def _undecided(about: RunFacts, check: str, found: Partial) -> tuple[str, str] | None:
    """Why `check` cannot be decided or has nothing to decide, as (verdict, reason); None if it can and has."""
    if check in ON_CLAIM and check not in about.claimed:
        return NOT_APPLICABLE, "the run does not claim it, and nobody asked"
    if about.holes and not (check == "integrity" and found.violations):
        return UNKNOWN, about.holes
    if check == "convergence" and _comparable(about) == 0:
        return NOT_APPLICABLE, "no two live nodes recorded a digest of the same state"
    if check in ("agreement", "convergence") and about.complete is False:
        return UNKNOWN, "the run did not end with a drain: what is missing may still have been on its way"
    if check == "agreement" and about.complete is None and found.violations:
        lacking = f"{found.violations:,} owed deliveries are" if found.violations > 1 else "one owed delivery is"
        return UNKNOWN, f"{lacking} missing, and nobody says that the trace is complete (if it is: --complete)"
    if check == "real-time" and not about.one_clock and about.asks_real_time:
        return UNKNOWN, "the nodes' clocks cannot be compared: the run does not say that they are one"
    if check == "genuine" and not about.sends_recorded:
        return UNKNOWN, "the run recorded no send or receive of any message"
    if not found.violations and not found.deliveries and check != "convergence":
        return NOT_APPLICABLE, "no delivery that it applies to"
    return None


def _comparable(about: RunFacts) -> int:
    """Digests that have another one to be compared with."""
    topics = [digest.topic for digest in about.digests]
    return sum(1 for topic in topics if topics.count(topic) > 1)


def _why_nothing(about: RunFacts, results: list[CheckResult]) -> str:
    for result in results:
        if result.verdict == UNKNOWN:
            return result.reason
    if not about.facts["messages"]:
        return "nothing was published"
    return "nothing that was published came under any of the checks"
