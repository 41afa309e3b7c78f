"""Files and directories that a process must own alone and that are on the disk when it says so."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Literal

from ordercast.core.errors import UsageError

Fsync = Literal["always", "interval", "never"]
PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600


class Disk:
    """Writing and syncing, behind one class so that a test can make them fail."""

    def write(self, file: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]

    def sync(self, file: int) -> None:
        os.fdatasync(file)


def make_private(directory: Path) -> None:
    """Make the directory and those above it, as far as they are not there; nobody else may look into them."""
    for missing in [path for path in (*reversed(directory.parents), directory) if not path.exists()]:
        missing.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def lock(directory: Path, in_use: str) -> int:
    """Make the directory if need be and lock it for this process; the open file that holds the lock.

    `in_use` says what is the matter if another process has it.
    """
    try:
        make_private(directory)
        held = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise UsageError(f"{directory}: {in_use}") from None
    return held


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
