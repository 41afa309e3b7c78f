"""The command that makes traces of any size, right or wrong in known places: for trying out the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ordercast.core.errors import UsageError


def synth(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory to write.")],
    nodes: Annotated[int, typer.Option(help="Nodes; each delivers every message.")] = 100,
    publishers: Annotated[int, typer.Option(help="How many of them publish.")] = 20,
    deliveries: Annotated[int, typer.Option(help="At least so many deliveries.")] = 1_000_000,
    guarantee: Annotated[str, typer.Option(help="causal, or total: then all deliver in the same order.")] = "causal",
    violations: Annotated[
        str, typer.Option(help="Violations to put in, such as fifo:2,causal:1,total:1,duplicate:1,lost:1,invented:1.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 0,
) -> None:
    """Make a trace of any size, with violations in known places. Prints its path.

    Example: ordercast synth -o runs/big --deliveries 10000000 --violations causal:3
    """
    from ordercast.trace.synthetic import TraceShape, write_synthetic

    window = min(publishers, 10)
    wanted = tuple(_violation(part) for part in violations.split(",") if part.strip())
    shape = TraceShape(nodes, publishers, deliveries, window, guarantee, seed, wanted)
    typer.echo(write_synthetic(out, shape))


def _violation(part: str) -> tuple[str, int]:
    kind, _, count = part.strip().partition(":")
    if count and not count.isdecimal():
        raise UsageError(f"--violations: {part.strip()!r} is not KIND:COUNT")
    return kind, int(count or 1)
