"""Is a change slower than what was before? Runs the benchmarks of two source trees in turn and prints their ratios.

    python benchmarks/before_after.py BASE [--rounds 5] [--only pubsub,tcp] [--long]

BASE is a commit, or the directory of another checkout. Each tree runs its own benchmarks on its own source, one after
the other, in an order that changes from round to round; the medians count, and a ratio above 1 means that this tree is
faster. Both are compiled and loaded first: otherwise every process of a benchmark would do that while its time is
taken. Rates are by the clock and need a quiet machine; what says "CPU" may be compared on a busy one. The table is
Markdown, as in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
LOADED = """
import runpy, sys, ordercast
ordercast.connect
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a benchmark in a process that has the library already, and so have the processes that it forks."""


class Row(NamedTuple):
    """One line of a benchmark's output that counts: what it is about, and its figures."""

    pattern: str
    """Its first group is the label; each further one is a figure, summed if there are several."""
    unit: str
    less_is_better: bool = False


class Case(NamedTuple):
    """One benchmark, with the options of a short and of a long run."""

    name: str
    short: str
    long: str
    rows: tuple[Row, ...]


_CPU = r"\s+\S+\s+\S+\s+\S+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)"
_OURS = r"^(ordercast \w+, \d brokers?)\s+"
CASES = (
    Case(
        "one_process", "--messages 20000 --rounds 3", "--rounds 5",
        (Row(r"^(\w+, \d brokers?, \d+ bytes)\s+([\d.]+) us", "CPU us a message", True),),
    ),
    Case(
        "pubsub", "--only ordercast --messages 60000 --repeat 1 --rate 1e9",
        "--only ordercast --messages 200000 --repeat 1 --rate 1e9",
        (Row(_OURS + r"([\d,]+)", "messages/s"), Row(_OURS + r"[\d,]+" + _CPU, "CPU us, all processes", True)),
    ),
    Case("tcp", "--seconds 2", "--seconds 4", (Row(r"^(flood|fifo|skeen)\s+([\d,]+)", "messages/s"),)),
    Case(
        "atomic_tcp", "--seconds 2 --rounds 1", "--rounds 3",
        (Row(r"^([a-z][\w, -]*?)\s+([\d,]+)\s", "deliveries/s"),),
    ),
    Case(
        "kept_state", "--messages 1500 --rounds 2", "",
        (Row(r"^((?:locamu|fifo)\s.*?)\s+(\d+)\s+[\d,]+", "CPU us a message", True),),
    ),
    Case(
        "simulator", "--messages 300 --rounds 2", "--rounds 3",
        (Row(r"^(Ordercast, [a-z ]+?)\s+[\d.]+\s+([\d,]+)", "hops a CPU s"),),
    ),
    Case(
        "judge", "", "",
        (
            Row(r"^(causal kernel)\s+([\d.]+)", "million deliveries a CPU s"),
            Row(r"^(judge, end to end).*?([\d.]+) s CPU", "CPU s", True),
        ),
    ),
    Case(
        "explorer", "", "",
        (Row(r"^([a-z-]+\s+nodes=.*?)\s+[\d,]+\s+[\d,]+\s+[\d,]+\s+([\d,]+)$", "transitions a CPU s"),),
    ),
)  # fmt: skip

Figures = dict[tuple[str, str], list[float]]
"""By label and unit: one figure a round."""


@contextlib.contextmanager
def checkout(base: str) -> Iterator[Path]:
    """The directory of the tree to compare with, which is made of a commit if it is none."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "base"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), base], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def environment(tree: Path, bytecode: Path) -> dict[str, str]:
    """In which a tree's benchmarks run on its own source, compiled."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = {**kept, "PYTHONPATH": str(tree / "src"), "PYTHONPYCACHEPREFIX": str(bytecode)}
    command = [sys.executable, "-m", "compileall", "-q", str(tree / "src"), str(tree / "benchmarks")]
    subprocess.run(command, env=found, check=True)
    return found


def run(tree: Path, case: Case, options: str, around: dict[str, str]) -> str:
    own = tree / "benchmarks" / f"{case.name}.py"
    script = own if own.exists() else HERE / "benchmarks" / own.name
    command = [sys.executable, "-c", LOADED, str(script), *options.split()]
    done = subprocess.run(command, cwd=tree, env=around, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{case.name} of {tree}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def read(case: Case, output: str, figures: Figures) -> None:
    for row in case.rows:
        for label, *found in (match.groups() for match in re.finditer(row.pattern, output, re.MULTILINE)):
            value = sum(float(figure.replace(",", "")) for figure in found)
            figures[" ".join(label.split()), row.unit].append(value)


def compare(case: Case, trees: dict[Path, dict[str, str]], options: str, rounds: int) -> None:
    """`trees`: the one before and this one, each with its environment."""
    found: list[Figures] = [defaultdict(list), defaultdict(list)]
    for number in range(rounds):
        turns = list(zip(trees.items(), found, strict=True))
        for (tree, around), figures in turns if number % 2 == 0 else reversed(turns):
            read(case, run(tree, case, options, around), figures)
        print(f"{case.name}: round {number + 1} of {rounds}", file=sys.stderr)
    before, after = found
    lower = {row.unit for row in case.rows if row.less_is_better}
    for (label, unit), values in before.items():
        old, new = statistics.median(values), statistics.median(after[label, unit])
        ratio = old / new if unit in lower else new / old
        print(f"| `{case.name}.py`: {label} | {unit} | {_figure(old)} | {_figure(new)} | {ratio:.2f} |", flush=True)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a commit, or a directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="names of benchmarks, separated by commas")
    parser.add_argument("--long", action="store_true", help="each as long as by itself")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name]
    unknown = set(wanted) - {case.name for case in CASES}
    if unknown:
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}")
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"Medians of {arguments.rounds} alternating runs; load of the machine at the beginning {load}\n")
    print("| benchmark | unit | before | after | ratio |\n| --- | --- | --- | --- | --- |")
    with checkout(arguments.base) as base, tempfile.TemporaryDirectory() as bytecode:
        trees = {tree: environment(tree, Path(bytecode)) for tree in (base, HERE)}
        for case in CASES:
            if not wanted or case.name in wanted:
                compare(case, trees, case.long if arguments.long else case.short, arguments.rounds)


if __name__ == "__main__":
    main()
