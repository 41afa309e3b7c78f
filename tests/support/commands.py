"""What tests of commands are given to run them: the arguments; exit code, standard output, standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from ordercast.cli import main

Command = Callable[..., tuple[int, str, str]]


def in_process(capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `ordercast ARGS` in this process: exit code, standard output, standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ordercast", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capture.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, captured.out, captured.err

    return run
