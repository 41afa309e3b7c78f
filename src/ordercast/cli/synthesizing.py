"""The command that makes traces of any size, right or wrong in known places: for trying out the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ordercast.core.errors import UsageError

_PUBLISHERS = 20
_DELIVERIES = 1_000_000


def synth(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory to write.")],
    nodes: Annotated[int, typer.Option(help="Nodes; each delivers every message.")] = 100,
    publishers: Annotated[
        int | None, typer.Option(help="How many of them publish; 20 if not given, or all if there are fewer nodes.")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(min=1, help="At least so many messages, each delivered by all.")
    ] = None,
    deliveries: Annotated[
        int | None, typer.Option(min=1, help="At least so many deliveries; a million if not given.")
    ] = None,
    guarantee: Annotated[str, typer.Option(help="causal, or total: then all deliver in the same order.")] = "causal",
    violations: Annotated[
        str,
        typer.Option(
            help="Violations to put in: a number, of all kinds in turn, or such as "
            "fifo:2,causal:1,total:1,duplicate:1,lost:1,invented:1."
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 0,
) -> None:
    """Make a trace of any size, with violations in known places. Prints its path.

    Example: ordercast synth -o runs/big --deliveries 10000000 --violations causal:3
    """
    from ordercast.trace.synthetic import TraceShape, write_synthetic

    if messages is not None and deliveries is not None:
        raise UsageError("--messages and --deliveries say the same: give one of them")
    publishing = min(_PUBLISHERS, nodes) if publishers is None else publishers
    wanted = messages * nodes if messages is not None else deliveries or _DELIVERIES
    shape = TraceShape(
        nodes, publishing, wanted, min(publishing, 10), guarantee, seed, _violations(violations, guarantee)
    )
    typer.echo(write_synthetic(out, shape))


def _violations(given: str, guarantee: str) -> tuple[tuple[str, int], ...]:
    """How many of which kind; a bare number is shared out among the kinds, the orders first."""
    if not given.strip().isdecimal():
        return tuple(_violation(part) for part in given.split(",") if part.strip())
    kinds = [*(["total"] if guarantee == "total" else []), "causal", "fifo", "lost", "duplicate", "invented"]
    share, rest = divmod(int(given), len(kinds))
    return tuple((kind, count) for i, kind in enumerate(kinds) if (count := share + (i < rest)))


def _violation(part: str) -> tuple[str, int]:
    kind, _, count = part.strip().partition(":")
    if count and not count.isdecimal():
        raise UsageError(f"--violations: {part.strip()!r} is not KIND:COUNT")
    return kind, int(count or 1)
