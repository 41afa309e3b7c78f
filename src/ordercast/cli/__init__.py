"""The command line: parse, call one function, print, exit."""

from ordercast.cli.app import main

__all__ = ["main"]
