"""The command that sizes recovery of causal clusters: size-buffer."""

from __future__ import annotations

from typing import Annotated

import typer

from ordercast.cli.options import Json, print_json


def size_buffer(
    creators: Annotated[int, typer.Option(help="Coordinators, that is, entries in use; not members.")],
    probability: Annotated[float, typer.Option(help="Of an update by one of them in one round.")],
    rounds: Annotated[int, typer.Option(help="Rounds that an update must stay: gossip, digest and both patiences.")],
    loss: Annotated[float, typer.Option(help="Probability of an update being gone that you accept.")] = 1e-6,
    slots: Annotated[int | None, typer.Option(help="Judge this buffer instead of finding one.")] = None,
    as_json: Json = False,
) -> None:
    """Size the recovery buffer of a causal cluster, beside the published rule of twice the expected updates.

    Assumes that updates are made independently of each other; in bursts more is lost.
    """
    from ordercast.protocols.cluster import sizing

    load = sizing.Load(creators, probability, rounds)
    sizing.check_load(load)
    wanted = sizing.slots_for(load, loss) if slots is None else slots
    rule = max(1, round(2 * load.expected))
    rows = {
        "expected_updates": load.expected,
        "slots": wanted,
        "loss": sizing.loss_exact(load, wanted),
        "loss_bound": sizing.loss_bound(load, wanted),
        "published_rule_slots": rule,
        "published_rule_loss": sizing.loss_exact(load, rule),
        "published_rule_bound": sizing.loss_bound(load, rule),
    }
    if as_json:
        print_json(rows)
        return
    typer.echo(f"updates while one must stay: {load.expected:.4g} expected")
    typer.echo(f"{wanted} slots: lost with {rows['loss']:.3g} (bound {rows['loss_bound']:.3g})")
    typer.echo(f"published rule, {rule} slots: lost with {rows['published_rule_loss']:.3g} "
               f"(bound {rows['published_rule_bound']:.3g})")  # fmt: skip
