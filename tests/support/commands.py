"""What tests of commands are given to run them: the arguments; exit code, standard output, standard error."""

from __future__ import annotations

from collections.abc import Callable

Command = Callable[..., tuple[int, str, str]]
