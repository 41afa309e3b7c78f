"""Commands run in this process."""

from __future__ import annotations

import pytest

from tests.support.commands import Command, in_process


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `ordercast ARGS` in this process: exit code, standard output, standard error."""
    return in_process(capsys, monkeypatch)
