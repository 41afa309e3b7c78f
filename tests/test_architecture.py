"""The rules of the house: who imports whom, what machines must not do, which pages must exist and be current."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.core.machine import Machine
from ordercast.protocols import CATALOGUE
from ordercast.scenario.model import Scenario
from ordercast.trace.describe import trace_format_page

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ordercast"
MACHINE_PACKAGES = ("core", "overlay", "protocols")

# Calls that would let the outside into a machine, or hash order into its behaviour.
BANNED_CALLS = {"open", "print", "input", "exec", "eval", "hash", "id", "__import__"}
BANNED_MODULES = {
    "asyncio",
    "socket",
    "threading",
    "time",
    "random",
    "logging",
    "pyspark",
    "os",
    "secrets",
    "uuid",
    "datetime",
}


def _lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(directory / "src")}
    return subprocess.run(
        [*command, "--no-cache"], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contracts, where a test may break them."""
    copy = tmp_path_factory.mktemp("package")
    shutil.copytree(SOURCE, copy / "src" / "ordercast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def test_the_contracts_about_imports_hold(package_copy: Path) -> None:
    result = _lint_imports(package_copy)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/ids.py", "import ordercast.sim.run", "arrows point down"),
        ("sim/links/host.py", "import ordercast.verify.verdict", "arrows point down"),
        ("core/ids.py", "import random", "machines are pure"),
        ("overlay/graphs.py", "import time", "machines are pure"),
        ("protocols/shared/seen.py", "import logging", "machines are pure"),
        ("verify/verdict.py", "import ordercast.core.messages", "the judge does not import the accused"),
        ("verify/verdict.py", "import ordercast.trace.recorder", "the judge does not import the accused"),
    ],
)
def test_each_contract_breaks_when_it_should(package_copy: Path, module: str, line: str, contract: str) -> None:
    file = package_copy / "src" / "ordercast" / module
    text = file.read_text()
    try:
        file.write_text(f"{text}\n{line}\n")
        result = _lint_imports(package_copy)
    finally:
        file.write_text(text)
    assert result.returncode == 1
    assert f"{contract} BROKEN" in result.stdout


def _calls_and_imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(f"{node.func.id}()")
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _machine_files() -> list[Path]:
    return sorted(file for package in MACHINE_PACKAGES for file in (SOURCE / package).rglob("*.py"))


@pytest.mark.parametrize("file", _machine_files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_machines_do_no_input_output_and_look_at_no_clock(file: Path) -> None:
    banned = {f"{name}()" for name in BANNED_CALLS} | BANNED_MODULES
    if file == SOURCE / "core" / "state.py":
        banned.remove("hash()")  # There it is what __hash__ is made of.
    assert not _calls_and_imports(file) & banned


def test_the_search_for_banned_calls_finds_them(tmp_path: Path) -> None:
    file = tmp_path / "impure.py"
    file.write_text("import time\nfrom os import path\nprint(hash(1))\n")
    assert _calls_and_imports(file) == {"time", "os", "print()", "hash()"}


def test_every_machine_says_what_must_survive_a_restart_by_names_it_has() -> None:
    """A misspelt durable or constant attribute would be lost, or compared, without anybody noticing."""
    for info in pkgutil.walk_packages([str(SOURCE / "protocols")], "ordercast.protocols."):
        importlib.import_module(info.name)
    for machine in _subclasses(Machine):
        if not machine.__module__.startswith("ordercast."):
            continue
        text = "".join(Path(sys.modules[base.__module__].__file__ or "").read_text() for base in machine.__mro__[:-1])
        for name in (*machine.durable, *machine.constant):
            assert f"self.{name}" in text, f"{machine.__name__} declares {name!r} and never sets it"


def _subclasses(base: type[Machine]) -> list[type[Machine]]:
    return [base, *(found for sub in base.__subclasses__() for found in _subclasses(sub))]


def test_light_commands_do_not_load_spark_or_matplotlib() -> None:
    heavy = "[name for name in ('pyspark', 'matplotlib', 'pandas', 'numba') if name in sys.modules]"
    program = f"import sys, ordercast, ordercast.sim, ordercast.cli; print({heavy})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_page_about_the_trace_format_is_up_to_date() -> None:
    page = (ROOT / "docs" / "trace-format.md").read_text()
    assert page == trace_format_page(), "run: python -m ordercast.trace.describe > docs/trace-format.md"


def _tables(hint: Any, found: set[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """Every struct that can be part of a scenario."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found.add(hint)
        for inner in typing.get_type_hints(hint).values():
            _tables(inner, found)
    for argument in typing.get_args(hint):
        _tables(argument, found)
    return found


def test_the_page_about_scenarios_names_every_kind_and_every_key() -> None:
    words = set(re.findall(r"[a-z][a-z_-]*", (ROOT / "docs" / "scenarios.md").read_text()))
    for table in _tables(Scenario, set()):
        missing = {*table.__struct_encode_fields__, table.__struct_config__.tag} - {None} - words
        assert not missing, f"docs/scenarios.md does not mention {missing} of {table.__name__}"


def test_the_page_about_scenarios_lists_the_library() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    listed = set(re.findall(r"^\| `([a-z0-9-]+\.toml)`", page, flags=re.MULTILINE))
    assert listed == {file.name for file in (ROOT / "scenarios").glob("*.toml")}


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_protocol_has_a_page(name: str) -> None:
    """A page of its own, or a mention on the page of the protocol that it is a variant of."""
    pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "protocols").glob("*.md")}
    variant_of = [stem for stem in pages if name.startswith(f"{stem}-") and name in pages[stem]]
    assert name in pages or variant_of, f"docs/protocols/{name}.md is missing"
