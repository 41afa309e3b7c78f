"""Commands run in this process."""

from __future__ import annotations

import sys

import pytest

from ordercast.cli import main
from tests.support.commands import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `ordercast ARGS` in this process: exit code, standard output, standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ordercast", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, captured.out, captured.err

    return run
