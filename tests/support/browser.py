"""A real Chromium, driven through its debugging port with a few lines of WebSocket of our own."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from tests.support.doors import masked

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TEXT = 1
_STEP_S = 0.1
_PATIENCE_S = 60.0


def chromium() -> str | None:
    """The program, if this machine has one; ORDERCAST_CHROMIUM names another."""
    named = os.environ.get("ORDERCAST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page of the browser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0
        self.complaints: list[str] = []
        """Exceptions and errors that the page had."""

    async def ask(self, method: str, **params: Any) -> Any:
        """Give an order of the protocol and return its result."""
        self._asked += 1
        order = {"id": self._asked, "method": method, "params": params}
        self._writer.write(masked(TEXT, msgspec.json.encode(order)))
        await self._writer.drain()
        while True:
            told = msgspec.json.decode(await self._frame())
            if told.get("id") == self._asked:
                assert "error" not in told, told
                return told["result"]
            if told.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(told["params"]["exceptionDetails"].get("exception", {}).get("description")))

    async def _frame(self) -> bytes:
        data = b""
        while True:
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
            data += await self._reader.readexactly(size)
            if first & 0x80:
                return data

    async def value(self, expression: str) -> Any:
        """What JavaScript says in the page."""
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str, holds: Callable[[Any], bool] = bool) -> Any:
        """Wait until the page says something of which that holds."""
        value = None
        for _ in range(int(_PATIENCE_S / _STEP_S)):
            value = await self.value(expression)
            if holds(value):
                return value
            await asyncio.sleep(_STEP_S)
        raise AssertionError(f"{expression} is still {value!r}; the page complains: {self.complaints}")

    def close(self) -> None:
        self._writer.close()

    async def picture(self, file: Path, width: int, height: int, *, dark: bool = False) -> None:
        """What somebody would see."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])
        await asyncio.sleep(1.0)  # Two of its own pictures.
        taken = await self.ask("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(taken["data"]))


@asynccontextmanager
async def tab(address: str) -> AsyncIterator[Tab]:
    """The page at `address` in a browser of its own, which is gone afterwards."""
    program = chromium()
    assert program is not None, "no Chromium on this machine"
    with tempfile.TemporaryDirectory(prefix="ordercast-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
        browser = await asyncio.create_subprocess_exec(
            program, *options, f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE
        )
        opened: Tab | None = None
        try:
            opened = await _open(browser, address)
            yield opened
        finally:
            if opened is not None:
                opened.close()
            browser.kill()
            await browser.wait()


async def _open(browser: asyncio.subprocess.Process, address: str) -> Tab:
    assert browser.stderr is not None
    port = ""
    while not port:
        line = (await browser.stderr.readline()).decode(errors="replace")
        assert line, "the browser ended before it listened"
        port = "".join(re.findall(r"ws://127\.0\.0\.1:(\d+)/", line))
    pages = await asyncio.to_thread(lambda: msgspec.json.decode(urlopen(f"http://127.0.0.1:{port}/json").read()))
    target = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port), limit=1 << 26)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET {target.partition(port)[2]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b" 101 " in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    opened = Tab(reader, writer)
    for domain in ("Page", "Runtime", "Log"):
        await opened.ask(f"{domain}.enable")
    await opened.ask("Page.navigate", url=address)
    return opened
