"""What is there in Python and in C is the same function twice; and an edited definition is what runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core import chance, compiled, vectors

ROOT = Path(__file__).parents[2]
WITHOUT_C = "import sys; sys.modules['ordercast.core._compiled'] = None; "
BITS = st.integers(0, 2**64 - 1)
ANY = st.integers() | st.integers(-(2**70), 2**70)
NUMBERS = st.integers(0, 3) | st.integers(2**26, 2**26 + 9) | st.integers(-(2**70), 2**70)
VECTORS = st.lists(NUMBERS, max_size=30)


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Built for this test; on a machine without a compiler the very definitions stand in for it."""
    directory = tmp_path_factory.mktemp("compiled")
    built = _compile(directory)
    if _compiler() is None:
        assert built.returncode == 1
        stand_in = ModuleType("_compiled")
        vars(stand_in).update(compiled.PYTHON)
        vars(stand_in)["BUILT_BESIDE"] = " ".join(map(compiled.fingerprint, compiled.PYTHON.values()))
        return stand_in
    assert built.returncode == 0, built.stderr
    (path,) = directory.iterdir()
    spec = importlib.util.spec_from_file_location("_compiled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiler() -> str | None:
    return shutil.which((sysconfig.get_config_var("LDSHARED") or "cc").split()[0])


def _compile(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "compile"), str(directory)]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)


def test_every_function_that_is_in_c_has_a_definition_in_python(in_c: ModuleType) -> None:
    functions = {name for name, value in vars(in_c).items() if callable(value) and not name.startswith("__")}
    assert functions == set(compiled.PYTHON) == {"ahead", "mix", "spread", "stir", "stir_twice", "unit"}


@given(BITS, ANY, ANY)
def test_draws_are_the_same_in_c(in_c: ModuleType, bits: int, a: int, b: int) -> None:
    python = compiled.PYTHON
    assert in_c.mix(a, bits, b) == python["mix"](a, bits, b)
    assert in_c.mix(bits, a) == python["mix"](bits, a)
    assert in_c.spread(a, b) == python["spread"](a, b)
    assert in_c.spread(a) == python["spread"](a)
    assert in_c.stir(bits) == python["stir"](bits)
    assert in_c.unit(bits) == python["unit"](bits)


@given(BITS, BITS)
def test_stirring_twice_is_the_same_in_c(in_c: ModuleType, x: int, y: int) -> None:
    assert in_c.stir_twice(x, y) == compiled.PYTHON["stir_twice"](x, y) == in_c.stir(in_c.stir(x) ^ y)


@given(VECTORS, VECTORS)
def test_vectors_compare_the_same_in_c(in_c: ModuleType, one: list[int], other: list[int]) -> None:
    expected = compiled.PYTHON["ahead"](one, other)
    assert in_c.ahead(one, other) == in_c.ahead(tuple(one), other) == in_c.ahead(one, tuple(other)) == expected
    assert in_c.ahead(one, list(one)) == 0


@pytest.mark.parametrize("wrong", [(), (None, 1), ("1", 2), (1.5, 2), (1, 2, 3, 4), ([1], ["a"]), ([1.5], (1,))])
@pytest.mark.parametrize("name", ["ahead", "mix", "spread", "stir", "stir_twice"])
def test_arguments_that_make_no_sense_are_a_type_error(in_c: ModuleType, name: str, wrong: tuple[object, ...]) -> None:
    """In C that is not to be taken for granted."""
    with pytest.raises(TypeError):
        getattr(in_c, name)(*wrong)


def test_an_edited_definition_is_what_runs(in_c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form in C counts only beside the code, and the constants, that it was built beside."""
    monkeypatch.setattr(compiled, "_built", vars(in_c))
    monkeypatch.setattr(compiled, "_built_beside", tuple(in_c.BUILT_BESIDE.split()))
    monkeypatch.setattr(compiled, "PYTHON", dict(compiled.PYTHON))
    written = Path(chance.__file__).read_text(encoding="utf-8")

    def which(text: str) -> Callable[[int, int], int]:
        module: dict[str, Callable[[int, int], int]] = {}
        exec(compile(text, chance.__file__, "exec"), module)
        return module["mix"]

    assert which(written) is in_c.mix
    for edited in (written.replace(">> 27", ">> 28", 1), written.replace("0x9E37", "0x9E38")):
        assert edited != written
        assert which(edited) is not in_c.mix
        assert which(edited)(1, 2) != in_c.mix(1, 2)


def test_a_simulation_writes_the_same_bytes_with_and_without_c(tmp_path: Path) -> None:
    """Both run from a copy of the sources, so that what was built here says nothing about it."""
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    built = _compile(copy / "ordercast" / "core", PYTHONPATH=str(copy))
    assert built.returncode == (0 if _compiler() else 1), built.stderr
    runs = [_simulated(copy, tmp_path / name, first) for name, first in (("with", ""), ("without", WITHOUT_C))]

    assert runs[0] == runs[1]
    assert runs[0]


def _simulated(source: Path, out: Path, first: str) -> dict[str, bytes]:
    call = [str(ROOT / "scenarios" / "cluster.toml"), "--seed", "7", "--out", str(out)]
    program = f"{first}from ordercast.cli import main; sys.argv[1:] = ['simulate', *{call!r}]; main()"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-P", "-c", "import sys; " + program], env=environment, check=True, timeout=240)
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


@pytest.mark.parametrize("lacks", ["compiler", "headers"])
def test_without_what_it_takes_nothing_is_compiled_and_one_line_says_so(lacks: str, tmp_path: Path) -> None:
    nothing = tmp_path / "none"
    nothing.mkdir()
    if lacks == "compiler":
        result = _compile(tmp_path, PATH=str(nothing))
    else:
        fake = nothing / (sysconfig.get_config_var("LDSHARED") or "cc").split()[0]
        fake.write_text(
            "#!/bin/sh\necho 'compiled.c:6:10: fatal error: Python.h: No such file or directory' >&2\nexit 1\n"
        )
        fake.chmod(0o755)
        result = _compile(tmp_path, PATH=str(nothing))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "in Python alone" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["none"]


def test_the_package_runs_the_definitions_where_nothing_is_built() -> None:
    check = "from ordercast.core import chance, compiled; assert chance.mix is compiled.PYTHON['mix']"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-P", "-c", WITHOUT_C + check], env=environment, check=True)
    assert vectors.ahead((2, 1), [1, 1]) == 1
