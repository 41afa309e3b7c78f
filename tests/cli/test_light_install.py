"""`pip install ordercast` is the client, the broker and their commands; what it leaves out is named in one line."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
USE = """
import asyncio, sys, ordercast
from ordercast.testing import cluster

async def main():
    async with cluster(2) as brokers, ordercast.connect(brokers.addresses[0]) as ann, ordercast.connect(
        brokers.addresses[1]
    ) as bob:
        inbox = await bob.subscribe("t")
        await ann.publish("t", b"hello", guarantee="total")
        print((await anext(aiter(inbox))).payload.decode())

asyncio.run(main())
print(sorted({"numpy", "numba", "pyarrow", "pandas", "pyspark", "matplotlib"} & set(sys.modules)))
"""


class LightInstall:
    """An empty virtual environment with our wheel and what it requires, nothing else."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory / "venv", with_pip=False, symlinks=True)
        self.python = directory / "venv" / "bin" / "python"
        self.packages = next((directory / "venv" / "lib").glob("python*/site-packages"))
        self._unpack(_wheel(directory))
        for name in _closure("ordercast", self.packages):
            self._link(importlib.metadata.distribution(name))

    def _unpack(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)

    def _link(self, distribution: importlib.metadata.Distribution) -> None:
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            (self.packages / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())

    def run(self, *args: str) -> tuple[int, str, str]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [self.python, *args], capture_output=True, text=True, cwd=self.packages.parent, env=environment,
            timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def command(self, *args: str) -> tuple[int, str, str]:
        return self.run("-m", "ordercast", *args)


def _wheel(directory: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = directory.glob("*.whl")
    return wheel


def _closure(name: str, packages: Path) -> set[str]:
    """All that `name` requires without an extra, directly or not."""
    (ours,) = importlib.metadata.distributions(name=name, path=[str(packages)])
    found: set[str] = set()
    waiting = [*(ours.requires or ())]
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name not in found:
            found.add(requirement.name)
            waiting.extend(importlib.metadata.distribution(requirement.name).requires or ())
    return found


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> LightInstall:
    return LightInstall(tmp_path_factory.mktemp("light"))


def test_the_light_install_runs_brokers_publishes_and_subscribes(light: LightInstall) -> None:
    code, out, err = light.run("-c", USE)

    assert (code, out.splitlines(), err) == (0, ["hello", "[]"], "")


def test_the_light_install_is_a_few_packages(light: LightInstall) -> None:
    assert {"msgspec", "rich", "typer", "uvloop"} <= _closure("ordercast", light.packages)
    assert not {"numpy", "numba", "pyarrow", "pandas", "pyspark", "matplotlib"} & _closure("ordercast", light.packages)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("simulate", "x.toml", "--out", "r"), "verify"),
        (("verify", ".", "--no-spark"), "verify"),
        (("protocols",), "verify"),
        (("explore", "vector"), "verify"),
        (("experiment", "list"), "verify"),
        (("verify", "."), "verify"),
        (("metrics", "."), "verify"),
        (("report", ".", "-o", "page.html"), "verify"),
        (("demo",), "verify"),
        (("engine", "start"), "spark"),
        (("engine", "prepare"), "spark"),
    ],
)
def test_what_needs_an_extra_says_in_one_line_which(
    light: LightInstall, arguments: tuple[str, ...], extra: str
) -> None:
    code, out, err = light.command(*arguments)

    assert (code, out, len(err.splitlines())) == (3, "", 1)
    assert f"pip install 'ordercast[{extra}]'" in err


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("pub", "a b", "x"), "a b"),
        (("pub", "t", "x", "--guarantee", "perfect"), "perfect"),
        (("pub", "t", "x", "--broker", "nowhere"), "nowhere"),
        (("sub", "a..b"), "a..b"),
        (("broker", "--id", "..", "--listen", "127.0.0.1:0"), ".."),
        (("up", "missing.toml"), "missing.toml"),
        (("status", "--cluster", "missing.toml"), "missing.toml"),
        (("no-such-command",), "no-such-command"),
        (("verify", "runs/gone"), "runs/gone"),
        (("report", "runs/gone", "-o", "page.html"), "runs/gone"),
    ],
)
def test_bad_input_is_one_line_without_the_extras(
    light: LightInstall, arguments: tuple[str, ...], culprit: str
) -> None:
    code, _, err = light.command(*arguments)

    assert (code, len(err.splitlines())) == (2, 1)
    assert culprit in err


def test_a_public_name_that_needs_an_extra_says_which(light: LightInstall) -> None:
    code, _, err = light.run("-c", "import ordercast; ordercast.simulate")

    assert code == 1
    assert "ordercast[verify]" in err.splitlines()[-1]
