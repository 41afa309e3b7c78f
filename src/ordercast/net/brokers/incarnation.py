"""Which life of a broker begins: a broker that restarts must not be mistaken for its former self.

The rule. A broker with an earlier life on record (`--data`) is restarted: its life is the time in milliseconds, or one
more than the last if that is higher. Without a record, a broker that has a parent to ask takes the time as its life; it
never begins as root, so nothing else depends on it. A broker without a parent and without a record asks every other
broker of its directory first. If none of them has ever been part of a tree (it says so, or nothing listens at its
address), this is the beginning of the cluster, and its life is 0: it begins as root. If one has been, or does not
answer at all, the broker is restarted and takes part in an election like any other.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.process import Peer
from ordercast.net.log.files import PRIVATE_FILE, lock, sync_directory
from ordercast.net.wire import handshake
from ordercast.net.wire.credentials import ASKING, Credentials, split_address
from ordercast.net.wire.frames import GreetingReader, greeting_frame

FIRST = 0
_EPOCH_MS = 1_767_225_600_000
"""2026-01-01: lives are milliseconds since then, so that their digits are few."""
_ASKING_S = 1.0
_READ_BYTES = 1024
_LEFT = "left"
_OWNER = "owner"
_LONGEST_OWNER = 200
_LIFE = re.compile(r"[0-9]{1,18}\n?")


class DataDirectory:
    """The directory of `--data`: who uses it, and how often it was used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._lock = lock(path, "another broker uses it")
        except UsageError as error:
            raise UsageError(f"data: {error}") from None

    def last_life(self) -> int | None:
        """The number of the life before this one; None if this is the first."""
        try:
            text = (self.path / "life").read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"data: {self.path / 'life'}: {error.strerror}") from None
        if not _LIFE.fullmatch(text):
            raise UsageError(f"data: {self.path / 'life'}: not a number that a life can have")
        return int(text)

    def claim(self, broker: str, cluster: str) -> None:
        """Put on record whose directory this is; a UsageError if it is another's, whose history is none of ours."""
        name = f"broker {broker!r} of cluster {cluster!r}"
        try:
            owner = (self.path / _OWNER).read_text(errors="replace").strip()
        except FileNotFoundError:
            self._write(_OWNER, name)
            return
        except OSError as error:
            raise UsageError(f"data: {self.path / _OWNER}: {error.strerror}") from None
        if owner != name:
            raise UsageError(f"data: {self.path}: belongs to {owner[:_LONGEST_OWNER]}, not to {name}")

    def begin(self, life: int) -> None:
        """Put the life on record before anybody hears of it."""
        self._write("life", str(life))

    def _write(self, name: str, text: str) -> None:
        unnamed = self.path / f"{name}.new"
        try:
            with unnamed.open("w") as file:
                os.fchmod(file.fileno(), PRIVATE_FILE)
                file.write(f"{text}\n")
                file.flush()
                os.fsync(file.fileno())
            unnamed.rename(self.path / name)
            sync_directory(self.path)
        except OSError as error:
            raise UsageError(f"data: {unnamed}: {error.strerror}") from None

    @staticmethod
    def left(path: Path) -> bool:
        """Whether the broker whose directory this is has left its cluster for good."""
        return (path / _LEFT).exists()

    def leave(self) -> None:
        """Put on record that all that is here was handed over, and that nobody counts on it any more."""
        (self.path / _LEFT).touch(PRIVATE_FILE)
        sync_directory(self.path)

    def begin_anew(self) -> None:
        """Forget what was handed over: it is of no use to a newcomer, and out of date."""
        shutil.rmtree(self.path / "ledger", ignore_errors=True)
        (self.path / _LEFT).unlink()

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def later_life(last: int | None) -> int:
    """Higher than any earlier life, on record or not."""
    return max((last or 0) + 1, time.time_ns() // 1_000_000 - _EPOCH_MS)


async def choose_life(
    me: Peer, directory: Mapping[NodeId, str], credentials: Credentials, *, last: int | None, has_parent: bool
) -> int:
    """The life that begins now, by the rule above."""
    if last is not None or has_parent:
        return later_life(last)
    asking = Peer(ASKING, me.name)
    others = [address for name, address in sorted(directory.items()) if name != me.name]
    answers = await asyncio.gather(*(_has_been_in_a_tree(asking, address, credentials) for address in others))
    return later_life(None) if any(answers) else FIRST


async def _has_been_in_a_tree(me: Peer, address: str, credentials: Credentials) -> bool:
    """Whether the broker at `address` knows a term; true also if it cannot be told."""
    try:
        return (await _answer_of(me, address, credentials)).term > 0
    except ConnectionRefusedError:
        return False
    except (OSError, PeerError, asyncio.IncompleteReadError):
        return True


async def check_welcome(me: Peer, address: str, credentials: Credentials) -> bool:
    """A UsageError if the broker at `address` refuses this one; false if nobody answers there yet."""
    try:
        told = await _answer_of(Peer(ASKING, me.name), address, credentials)
    except PeerError as error:
        raise UsageError(f"--parent: {address} {error.reason} (cluster: --cluster or --config)") from None
    except (OSError, asyncio.IncompleteReadError):
        return False
    if told.name == me.name:
        raise UsageError(f"--id: the broker at {address} is called {me.name!r} too; each broker needs its own name")
    return True


async def _answer_of(me: Peer, address: str, credentials: Credentials) -> handshake.Accepted:
    """What the broker at `address` says of itself; an error if it says nothing."""
    tls = credentials.tls
    host, port = split_address(address)
    async with asyncio.timeout(_ASKING_S):
        context = tls.client_context() if tls is not None else None
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            return await _ask(me, credentials, reader, writer, address)
        finally:
            writer.transport.abort()


async def _ask(
    me: Peer, credentials: Credentials, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
) -> handshake.Accepted:
    greetings = GreetingReader(address)

    async def greeting() -> handshake.Greeting:
        body = greetings.feed(b"")
        while body is None:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise PeerError(address, "closed the connection")
            body = greetings.feed(data)
        return handshake.decode(body, address)

    said = handshake.present(me, credentials, await greeting(), address)
    writer.write(greeting_frame(handshake.encode(said)))
    answer = await greeting()
    handshake.accepted(me, credentials, answer, said, address)
    assert isinstance(answer, handshake.Accepted)
    return answer
