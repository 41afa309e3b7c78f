"""The commands `ordercast engine`: a Spark that stays between commands, and an archive for a fast start of any."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ordercast.cli.exits import VIOLATED
from ordercast.cli.options import Json, print_json
from ordercast.core.errors import UsageError
from ordercast.core.extras import expect

if TYPE_CHECKING:
    from ordercast.verify.spark.engine import EngineState

engine = typer.Typer(help="Keep a Spark running, so that verify, metrics and report need not start one.")

_IDLE_MINUTES = 60.0

EngineMaster = Annotated[str | None, typer.Option(help="Spark master of the engine; local[2] if not given.")]
Memory = Annotated[str | None, typer.Option(help="Java heap, such as 4g; ORDERCAST_SPARK_MEMORY or 2g if not given.")]
Idle = Annotated[float, typer.Option(min=0.1, help="It ends by itself when nobody used it for so many minutes.")]


@engine.command()
def start(master: EngineMaster = None, memory: Memory = None, idle_minutes: Idle = _IDLE_MINUTES) -> None:
    """Start the engine in the background, and wait until it can be used. Commands find it by themselves.

    Example: ordercast engine start --idle-minutes 240
    """
    expect("pyspark", "numpy")
    from ordercast.verify.spark import engine as warm
    from ordercast.verify.spark.session import DEFAULT_MASTER, expect_master

    master = master or DEFAULT_MASTER
    expect_master(master)
    before = warm.running()
    state = before or warm.start(master, memory, idle_minutes)
    if before is not None and before.master != master:
        raise UsageError(f"--master: the engine runs on {before.master} already (ordercast engine stop)")
    typer.echo(f"the engine {'runs already' if before else 'is ready'}: {_in_words(state)}")


@engine.command()
def stop() -> None:
    """End the engine, its Java and its workers.

    Example: ordercast engine stop
    """
    from ordercast.verify.spark.engine import stop as end

    typer.echo("the engine has ended" if end() else "no engine was running")


@engine.command()
def status(json: Json = False) -> None:
    """Is there an engine, and can this command use it? Exit 1 if there is none.

    Example: ordercast engine status
    """
    from ordercast.verify.spark.engine import code_digest, running

    state = running()
    fits = state is not None and state.code == code_digest()
    if json:
        print_json({"running": state is not None, "usable": fits, "master": state.master if state else None})
    elif state is None:
        typer.echo("no engine is running")
    else:
        typer.echo(f"the engine runs: {_in_words(state)}{'' if fits else '; its code is not of this command'}")
    raise typer.Exit(0 if state is not None else VIOLATED)


@engine.command()
def prepare() -> None:
    """Write down Spark's classes for Java, so that every later start takes half the work. Once, half a minute, 150 MB.

    Example: ordercast engine prepare
    """
    expect("pyspark")
    from ordercast.verify.spark.class_archive import prepare as make

    archive = make()
    typer.echo(archive or "this Java cannot keep an archive of classes: Spark starts without one")


def _in_words(state: EngineState) -> str:
    minutes = (time.time() - state.started_at) / 60
    return (
        f"process {state.pid}, {state.master}, for {minutes:.0f} minutes; "
        f"ends after {state.idle_minutes:g} minutes without use"
    )
