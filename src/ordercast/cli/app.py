"""The command `ordercast`: its sub-commands, and one place where every error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated

import typer
from typer.exceptions import TyperException

from ordercast.cli import brokering, demo, exploring, judging, messaging, running, studying
from ordercast.cli.exits import BAD_INPUT, ENVIRONMENT_LACKS, FAILED, READER_GONE, explain
from ordercast.cli.options import silence_output

app = typer.Typer(
    name="ordercast",
    help="Publish/subscribe with a delivery guarantee per message, and the proof from the trace that it held.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(*, value: bool) -> None:
    if value:
        typer.echo(f"ordercast {version('ordercast')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Publish/subscribe with a delivery guarantee per message, and the proof from the trace that it held."""


app.command()(demo.demo)
app.command()(running.simulate)
app.command()(running.run)
app.command()(judging.verify)
app.command()(judging.metrics)
app.command()(judging.report)
app.command()(studying.protocols)
app.command()(running.shrink)
app.command()(running.new_protocol)
app.command()(exploring.explore)
app.command()(brokering.broker)
app.command()(brokering.up)
app.command()(brokering.status)
app.command()(brokering.kill)
app.command()(brokering.restart)
app.command()(brokering.down)
app.command()(brokering.leave)
app.command()(brokering.remove)
app.command()(brokering.explain)
app.command()(messaging.pub)
app.command()(messaging.sub)
app.add_typer(studying.experiment, name="experiment")


def main() -> None:
    """Run the command line.

    Exit codes: 0 held, 1 violated, 2 bad input, 3 something is missing here, 4 undecided, 70 failed inside: a
    protocol's code or ours raised what it must never raise (ORDERCAST_TRACEBACK=1 shows the whole way there).
    """
    try:
        code = app(standalone_mode=False)
    except TyperException as error:
        code = _usage_error(error)
    except KeyboardInterrupt:
        sys.stderr.write("ordercast: interrupted\n")
        code = 130
    except BrokenPipeError:
        code = READER_GONE
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a line
        line, code = explain(error)
        if code == FAILED and os.environ.get("ORDERCAST_TRACEBACK"):
            traceback.print_exc()
        sys.stderr.write(f"ordercast: {line}\n")
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_output()
    sys.exit(code if isinstance(code, int) else 0)


def _usage_error(error: TyperException) -> int:
    """One line for a wrong option or argument; typer's own exit requests keep their code."""
    if isinstance(error, typer.Abort):
        return 130
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message:
        sys.stderr.write(f"ordercast: {' '.join(message.split())}\n")
    return getattr(error, "exit_code", BAD_INPUT)


__all__ = ["BAD_INPUT", "ENVIRONMENT_LACKS", "app", "main"]
