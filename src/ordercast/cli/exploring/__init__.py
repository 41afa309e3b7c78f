"""The command that runs every interleaving: explore."""

from ordercast.cli.exploring.command import explore

__all__ = ["explore"]
