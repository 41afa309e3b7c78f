"""What every swarm's command does: run seeds, tell what fails with the command that runs it again, and count."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ordercast.scenario.load import dump_scenario
from ordercast.scenario.model import Scenario
from ordercast.verify.verdict import HELD, NOT_APPLICABLE, PASS, Verdict

Attempt = Callable[[int, Path], tuple[str, Counter[str]]]
"""Runs a seed in a directory: what is wrong with it, empty if nothing is, and what there is to count."""


class Family:
    """Seeds that are tried in one way. `again`: the options that name it on the command line."""

    def __init__(self, name: str, attempt: Attempt, scenario: Callable[[int], Scenario], again: str = "") -> None:
        self.name, self.attempt, self.scenario, self.again = name, attempt, scenario, again


def swarm_parser(description: str | None, protocols: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    if protocols:
        parser.add_argument("--protocol", action="append", help=f"may be repeated (default: {', '.join(protocols)})")
    return parser


def judged(verdict: Verdict) -> tuple[str, Counter[str]]:
    """A verdict as what is wrong and what was counted."""
    deliveries = max((result.deliveries for result in verdict.results), default=0)
    wrong = "" if verdict.exit_code() == HELD else told(verdict)
    return wrong, Counter(deliveries=deliveries)


def told(verdict: Verdict) -> str:
    """Why it does not hold: every check that fails, with the story of its first witness."""
    lines = [verdict.reason]
    for result in verdict.results:
        if result.verdict not in {PASS, NOT_APPLICABLE}:
            lines.append(f"  {result.check}: {result.verdict} ({result.violations}) {result.reason}")
            lines += [f"    {step}" for witness in result.witnesses[:1] for step in witness.story]
    return "\n".join(lines)


def run_seeds(arguments: argparse.Namespace, families: Sequence[Family]) -> int:
    """All seeds of all families; 1 if any fails."""
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with tempfile.TemporaryDirectory() as scratch:
        return int(sum(_run_family(family, seeds, Path(scratch) / "run") for family in families) > 0)


def _run_family(family: Family, seeds: range, out: Path) -> int:
    failed, counts, started = 0, Counter[str](), time.monotonic()
    for seed in seeds:
        wrong, more = _try(family, seed, out, alone=len(seeds) == 1)
        counts += more
        if wrong:
            failed += 1
            _report(family, seed, wrong, alone=len(seeds) == 1)
        _progress(f"{family.name}: seed {seed}, {failed} failed")
    counted = ", ".join(f"{number} {what}" for what, number in counts.items())
    spent = time.monotonic() - started
    print(f"{family.name}: {len(seeds)} seeds, {counted}, {failed} failed, {spent:.1f} s", flush=True)
    return failed


def _try(family: Family, seed: int, out: Path, *, alone: bool) -> tuple[str, Counter[str]]:
    try:
        return family.attempt(seed, out)
    except Exception as error:
        if alone:
            print(dump_scenario(family.scenario(seed)))
            raise
        return f"{type(error).__name__}: {error}", Counter()


def _report(family: Family, seed: int, wrong: str, *, alone: bool) -> None:
    print(f"{family.name}, seed {seed}: {wrong}")
    if alone:
        print(dump_scenario(family.scenario(seed)))
    command = f"python -m {sys.modules['__main__'].__spec__.name} --seeds 1 --first {seed} {family.again}"
    print(f"again: {command.strip()}", flush=True)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
