"""The command line: parse, call one function, print, exit."""

from __future__ import annotations

import os
import sys

_STANDARD = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


def main() -> None:
    """Run the command line; Ctrl-C while it is still being loaded is an interrupt like any other."""
    _open_standard_streams()
    try:
        from ordercast.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("ordercast: interrupted\n")
        sys.exit(130)
    run()


def _open_standard_streams() -> None:
    """Give a process that was started with closed standard streams empty ones.

    Otherwise its first sockets would take their numbers, which the event loop does not survive.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STANDARD[-1][1]:
        os.set_inheritable(opened, True)
    os.close(opened)
    for name, number, mode in _STANDARD:
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for as long as the process lives


__all__ = ["main"]
