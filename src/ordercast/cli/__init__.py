"""The command line: parse, call one function, print, exit."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being loaded is an interrupt like any other."""
    try:
        from ordercast.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("ordercast: interrupted\n")
        sys.exit(130)
    run()


__all__ = ["main"]
