"""The example of the key-value store does what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.loop import run_async

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv_store.py"


def test_the_example_keeps_the_sum_of_all_accounts(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("kv_store_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert run_async(example.main)
    assert "sum 900: nothing was lost" in capsys.readouterr().out
