"""A private PostgreSQL server for tests: in a temporary directory, on a Unix socket, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIVEN = "ORDERCAST_TEST_POSTGRES"


class NoServer(Exception):  # noqa: N818
    """There is none and none can be started; the message says why."""


@contextmanager
def server(*, durable: bool = False) -> Iterator[str]:
    """The DSN of a server: the one that the environment names, or a fresh one."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    programs = _programs()
    directory = Path(tempfile.mkdtemp(prefix="ordercast-pg-"))
    user = _user()
    try:
        if user is not None:
            os.chown(directory, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data = directory / "data"
        _run([programs / "initdb", "--auth=trust", "--no-sync", "--username=test", "-D", data], user, directory)
        quick = "" if durable else "-c fsync=off -c synchronous_commit=off"
        options = f"-c listen_addresses='' -c unix_socket_directories={directory} {quick}"
        _run([programs / "pg_ctl", "-D", data, "-o", options, "-l", directory / "log", "-w", "start"], user, directory)
        try:
            yield f"host={directory} user=test dbname=postgres"
        finally:
            _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], user, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _programs() -> Path:
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        raise NoServer(f"no PostgreSQL server on this machine; install one, or name one in {GIVEN}")
    return installed[-1].parent


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NoServer("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


def _run(command: list[str | Path], user: str | None, directory: Path) -> None:
    try:
        subprocess.run(
            list(map(str, command)), user=user, extra_groups=[] if user else None, cwd=directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, timeout=60,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise NoServer(f"{Path(command[0]).name}: {error.stderr.decode(errors='replace').strip()}") from None
