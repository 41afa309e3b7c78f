"""Connections under TLS: believed certificates only, and with `mutual` of both ends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import Credentials, Tls
from tests.support.certificates import make_certificate
from tests.support.loop import run_async, until
from tests.support.wires import HASTY, Process, running

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that sign themselves: `good` and `other`."""
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("good", "other"):
        make_certificate(directory, name)
    return directory


def _known(directory: Path, name: str = "", *, ca: str = "good", mutual: bool = False) -> Credentials:
    own = {"cert": str(directory / f"{name}.pem"), "key": str(directory / f"{name}.key")} if name else {}
    return Credentials(cluster="test", tls=Tls(ca=str(directory / f"{ca}.pem"), mutual=mutual, **own))


def test_client_and_broker_talk_under_tls(certificates: Path) -> None:
    async def main() -> None:
        b1 = Process("b1", credentials=_known(certificates, "good"))
        ann = Process("ann", kind="client", credentials=_known(certificates))
        async with running(b1, ann):
            connection = ann.dial(b1)
            ann.say(connection, *["x" * 50_000] * 20, "end")
            await until(lambda: b1.scribe.heard[-1:] == ["end"])
            await ann.host.stop("done")
            await until(lambda: b1.scribe.ends == [(False, "done")])

    run_async(main)


@pytest.mark.parametrize(
    ("mutual", "ca", "own"),
    [(False, "other", ""), (True, "good", ""), (True, "good", "other"), (False, None, "")],
    ids=["broker not believed", "no certificate shown", "client not believed", "no TLS at all"],
)
def test_whoever_is_not_believed_gets_no_connection(certificates: Path, mutual: bool, ca: str | None, own: str) -> None:
    async def main() -> None:
        b1 = Process("b1", credentials=_known(certificates, "good", mutual=mutual))
        known = Credentials(cluster="test") if ca is None else _known(certificates, own, ca=ca)
        eve = Process("eve", kind="client", credentials=known)
        async with running(b1, eve):
            eve.dial(b1)
            await until(lambda: bool(eve.scribe.ends))
            assert b1.scribe.peers == {}

    run_async(main)


def test_a_believed_client_certificate_opens_a_mutual_connection(certificates: Path) -> None:
    async def main() -> None:
        b1 = Process("b1", credentials=_known(certificates, "good", mutual=True))
        ann = Process("ann", kind="client", credentials=_known(certificates, "good"))
        async with running(b1, ann):
            ann.dial(b1)
            await until(lambda: b1.scribe.names() == ["ann"])

    run_async(main)


def test_those_that_never_begin_tls_are_counted_and_make_room(certificates: Path) -> None:
    async def main() -> None:
        few = msgspec.structs.replace(HASTY, strangers=6, handshake_ms=20_000)
        b1 = Process("b1", credentials=_known(certificates, "good"), settings=few)
        ann = Process("ann", kind="client", credentials=_known(certificates))
        async with running(b1, ann):
            silent = [await asyncio.open_connection(*b1.address.rsplit(":", 1)) for _ in range(20)]
            await until(lambda: b1.host.counters["closed_strangers"] == 20 - 3)
            ann.dial(b1)
            await until(lambda: b1.scribe.names() == ["ann"])
            for _, writer in silent:
                writer.close()

    run_async(main)


def test_missing_files_are_named(tmp_path: Path) -> None:
    async def main() -> None:
        nowhere = Credentials(cluster="test", tls=Tls(cert=str(tmp_path / "no.pem")))
        with pytest.raises(UsageError, match=r"^tls\.cert: no such file: "):
            Process("b1", credentials=nowhere)

    run_async(main)
