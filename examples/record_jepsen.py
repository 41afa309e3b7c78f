"""Drives a log as Jepsen's kafka workload does, and writes the history in Jepsen's form, EDN: does every poll agree?

    nats-server -p 4222 -js -sd /tmp/streams &
    python examples/record_jepsen.py nats://127.0.0.1:4222 -o history.edn      # needs nats-py
    ordercast verify --from-format jepsen-kafka history.edn --checks integrity,total

The log is JetStream, the kept streams of a NATS server: each key is a stream, and the place of a message in it its
offset. Processes send unique numbers to keys and poll all keys from where each of them has got to; some operations are
transactions of several sends and polls in Jepsen's words, which JetStream runs as single steps. `--cut` closes the
connection of a process now and then in the middle of a send, which is then written as `:info`: nobody knows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Any

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

KEYS = (0, 1, 2)
"""As in Jepsen, numbers; the stream of each has a letter before it, which NATS asks for."""


class History:
    """Operations in the order in which they began and ended, as Jepsen writes them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.begun = time.monotonic_ns()

    def add(self, kind: str, process: int, name: str, steps: list[str]) -> None:
        now = time.monotonic_ns() - self.begun
        value = f"[{' '.join(steps)}]"
        self.lines.append(
            f"{{:type :{kind}, :process {process}, :f :{name}, :value {value}, :time {now}, :index {len(self.lines)}}}"
        )


class Process:
    """One process of the workload, with its own connection and its own place in every stream."""

    def __init__(self, number: int, url: str, history: History, *, cut: bool) -> None:
        self.number, self.url, self.history, self.cut = number, url, history, cut
        self.rng = random.Random(number)  # noqa: S311  # A workload, the same each time.
        self.polled = 0

    async def connect(self) -> None:
        self.client = await nats.connect(self.url, allow_reconnect=False)
        self.streams = self.client.jetstream(timeout=2)

    async def start(self) -> None:
        await self.connect()
        for key in KEYS:
            config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy="explicit")
            await self.streams.pull_subscribe(f"k{key}", f"p{self.number}", stream=f"k{key}", config=config)

    async def poll(self) -> str:
        """The next few of every key, each with its offset."""
        by_key = []
        for key in KEYS:
            reader = await self.streams.pull_subscribe_bind(f"p{self.number}", stream=f"k{key}")
            with contextlib.suppress(TimeoutError):
                found = await reader.fetch(5, timeout=0.1)
                for one in found:
                    await one.ack_sync()
                pairs = " ".join(f"[{one.metadata.sequence.stream} {one.data.decode()}]" for one in found)
                by_key.append(f"{key} [{pairs}]")
                self.polled += len(found)
            await reader.unsubscribe()
        return f"[:poll {{{', '.join(by_key)}}}]"

    async def send(self, key: int, value: int) -> str:
        answer = await self.streams.publish(f"k{key}", str(value).encode())
        return f"[:send {key} [{answer.seq} {value}]]"

    async def operation(self, number: int) -> None:
        name = self.rng.choice(("send", "send", "poll", "txn"))
        kinds = {"send": ["send"], "poll": ["poll"], "txn": ["send", "poll", "send"]}[name]
        asked: list[Any] = [
            (self.rng.choice(KEYS), self.number * 1000 + number * 10 + i) if kind == "send" else None
            for i, kind in enumerate(kinds)
        ]
        said = [f"[:send {one[0]} {one[1]}]" if one else "[:poll]" for one in asked]
        self.history.add("invoke", self.number, name, said)
        if self.cut and name == "send" and self.rng.random() < 0.2:
            await self.client.publish(f"k{asked[0][0]}", str(asked[0][1]).encode())
            await self.client.close()  # It may have gone out, or not.
            self.history.add("info", self.number, name, said)
            self.number += 100  # A process whose operation has no end is another one from then on.
            await self.start()
            return
        done = [await self.send(*one) if one else await self.poll() for one in asked]
        self.history.add("ok", self.number, name, done)

    async def run(self, operations: int) -> None:
        await self.start()
        for number in range(operations):
            await self.operation(number)

    async def finish(self, messages: int) -> None:
        """Poll until nothing is left, in the end."""
        for _ in range(messages):
            before = self.polled
            self.history.add("invoke", self.number, "poll", ["[:poll]"])
            self.history.add("ok", self.number, "poll", [await self.poll()])
            if self.polled == before:
                break
        await self.client.close()


async def main(asked: argparse.Namespace) -> None:
    setting_up = await nats.connect(asked.url)
    for key in KEYS:
        await setting_up.jetstream().add_stream(name=f"k{key}", subjects=[f"k{key}"])
    await setting_up.close()
    history = History()
    processes = [Process(number, asked.url, history, cut=asked.cut) for number in range(asked.processes)]
    async with asyncio.timeout(120):
        await asyncio.gather(*(process.run(asked.operations) for process in processes))
        await asyncio.gather(*(process.finish(1000) for process in processes))
    asked.out.write_text("\n".join(history.lines) + "\n")
    print(f"{asked.out}: {len(history.lines)} lines, {sum(process.polled for process in processes)} values polled")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--operations", type=int, default=12)
    parser.add_argument("--cut", action="store_true", help="lose connections in the middle of sends")
    parser.add_argument("-o", "--out", type=Path, default=Path("history.edn"))
    asyncio.run(main(parser.parse_args()))
