"""The command `ordercast`: its sub-commands, and one place where every error becomes one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ordercast.cli import (
    brokering,
    demo,
    engine,
    exploring,
    judging,
    keeping,
    messaging,
    monitoring,
    running,
    sizing,
    studying,
    synthesizing,
    top,
)
from ordercast.cli.exits import BAD_INPUT, ENVIRONMENT_LACKS, FAILED, INTERRUPTED, READER_GONE, explain, lack_of_room
from ordercast.cli.options import silence_output


class _Raised(Exception):  # noqa: N818 - no error
    """Holds what a command raised and typer would make an exit code of, like one that a command chose."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError, EOFError) as error:
            raise _Raised(error) from None


app = typer.Typer(
    name="ordercast",
    cls=_Commands,
    help="Publish/subscribe with a delivery guarantee per message, and the proof from the trace that it held.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
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


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Begin here": (demo.demo,),
    "Publish and subscribe": (messaging.pub, messaging.sub, keeping.history, keeping.keep),
    "Brokers": (
        brokering.broker, brokering.up, brokering.status, brokering.kill, brokering.restart, brokering.down,
        brokering.leave, brokering.remove, brokering.explain, top.top,
    ),
    "Did it hold?": (
        judging.verify, monitoring.monitor, judging.metrics, judging.report, judging.shiviz, synthesizing.synth,
    ),
    "Protocols and studies": (
        running.simulate, running.run, running.shrink, exploring.explore, running.new_protocol, studying.protocols,
        sizing.size_buffer,
    ),
}  # fmt: skip

for panel, commands in _GROUPS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(engine.engine, name="engine", rich_help_panel="Did it hold?")
app.add_typer(studying.experiment, name="experiment", rich_help_panel="Protocols and studies")


def main() -> None:
    """Run the command line.

    Exit codes: 0 held, 1 violated, 2 bad input, 3 something is missing here, 4 undecided, 70 failed inside: a
    protocol's code or ours raised what it must never raise (ORDERCAST_TRACEBACK=1 shows the whole way there).
    """
    _keep_interrupts_quiet()
    lack = lack_of_room()
    if lack:
        sys.exit(_complain(lack, ENVIRONMENT_LACKS))
    try:
        code = app(standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the last place where an error can become a line
        code = _ended_by(error.error if isinstance(error, _Raised) else error)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_output()
    except ValueError as error:  # Somebody's code closed it.
        code = code if code == FAILED else _failed(error)
    sys.exit(code if isinstance(code, int) else 0)


def _ended_by(error: BaseException) -> int:
    """The exit code of what a command ended with. None of ours calls sys.exit: somebody's code that does has failed."""
    if isinstance(error, KeyboardInterrupt):
        return _interrupted()
    if isinstance(error, TyperException):
        return _usage_error(error)
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    return _failed(error)


def _failed(error: BaseException) -> int:
    line, code = explain(error)
    if code == FAILED and os.environ.get("ORDERCAST_TRACEBACK"):
        traceback.print_exception(error)
    return _complain(line, code)


def _keep_interrupts_quiet() -> None:
    """Silence what Spark's bridge to Java logs about Ctrl-C: whoever pressed it knows."""
    logging.getLogger().addFilter(_is_no_interrupt)
    bridge = logging.getLogger("py4j")
    bridge.addHandler(logging.NullHandler())
    bridge.propagate = False  # A lost Java comes as an exception, too.


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


def _interrupted() -> int:
    """Ctrl-C: Spark's Java ends now, started completely or not, and nobody prints where it was."""
    from ordercast.verify.spark.gateway import end_java

    end_java()
    return _complain("interrupted", INTERRUPTED)


def _complain(line: str, code: int) -> int:
    sys.stderr.write(f"ordercast: {line}\n")
    return code


def _usage_error(error: TyperException) -> int:
    """One line for a wrong option or argument; typer's own exit requests keep their code."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message:
        sys.stderr.write(f"ordercast: {' '.join(message.split())}\n")
    return getattr(error, "exit_code", BAD_INPUT)


__all__ = ["BAD_INPUT", "ENVIRONMENT_LACKS", "app", "main"]
