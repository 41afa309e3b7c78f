"""The demo as a page: the live page of its brokers, with buttons that kill and restart them while the bank works.

A small HTTP server of the demo's own process gives out the page and takes orders. It listens on this machine alone, and
an order needs the secret that is in the page: another site that somebody visits meanwhile cannot kill anything.
"""

from __future__ import annotations

import html
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Literal, NamedTuple, cast

import msgspec

_HEADER = "X-Ordercast-Demo"


class LiveOrder(NamedTuple):
    """An order by a button of the live page."""

    deed: Literal["kill", "restart"]
    broker: str


class LiveControl:
    """`with LiveControl(doors) as control`: serves the page at `control.address`; orders wait in `control.orders`."""

    def __init__(self, doors: dict[str, str]) -> None:
        self.orders: queue.Queue[LiveOrder] = queue.Queue(maxsize=len(doors))
        self.doors = doors
        """Broker to the address of its door for browsers."""
        self.secret = secrets.token_urlsafe(16)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.control = self  # type: ignore[attr-defined]  # A handler knows its server alone.
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.origin = f"http://{self.host}"

    def __enter__(self) -> LiveControl:
        threading.Thread(target=self._server.serve_forever, name="live page", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> bytes:
        """The live page of a broker, told whom to watch and where orders go."""
        told = {"doors": {broker: f"http://{door}" for broker, door in self.doors.items()}, "secret": self.secret}
        meta = f'<meta name="ordercast-demo" content="{html.escape(msgspec.json.encode(told).decode())}">'
        page = resources.files("ordercast.doors.web").joinpath("live.html").read_text(encoding="utf-8")
        return page.replace("<head>", f"<head>{meta}", 1).encode()

    def order(self, path: str, secret: str) -> tuple[int, str]:
        """Status and words: an order is taken, or it is said why not."""
        if not secrets.compare_digest(secret.encode(), self.secret.encode()):
            return 403, "only the page of this demo may do that"
        _, deed, broker, *rest = [*path.split("/"), "", ""]
        if deed not in ("kill", "restart") or broker not in self.doors or any(rest):
            return 404, "known: /kill/BROKER and /restart/BROKER"
        try:
            self.orders.put_nowait(LiveOrder(cast("Literal['kill', 'restart']", deed), broker))
        except queue.Full:
            return 429, "wait until the last orders are done"
        return 202, f"{deed} {broker}: on its way"


class _Handler(BaseHTTPRequestHandler):
    server_version = "ordercast"
    timeout = 10  # Of a connection that says nothing.

    @property
    def control(self) -> LiveControl:
        return cast("LiveControl", self.server.control)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        known = self.path == "/"
        body = self.control.page() if known else b"known: /\n"
        self._answer(200 if known else 404, "text/html; charset=utf-8" if known else "text/plain", body)

    def do_POST(self) -> None:
        if self._is_for_us():
            status, words = self.control.order(self.path, self.headers.get(_HEADER, ""))
            self._answer(status, "text/plain; charset=utf-8", f"{words}\n".encode())

    def _is_for_us(self) -> bool:
        """A name that leads here from elsewhere must not: its pages would read this one, and the secret with it."""
        if self.headers.get("Host") == self.control.host:
            return True
        self._answer(403, "text/plain; charset=utf-8", f"this is http://{self.control.host}/\n".encode())
        return False

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that its base has
        """Nobody reads a log of a demo."""
