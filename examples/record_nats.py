"""Records what clients of a NATS server publish and get, for `ordercast verify`: which orders does it keep?

    nats-server -p 4222 &
    python examples/record_nats.py nats://127.0.0.1:4222 -o nats.jsonl      # needs nats-py
    ordercast verify nats.jsonl --complete --no-spark

Several clients publish on one subject at once, and answer some of what they get.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import nats
from nats.aio.msg import Msg
from recorder import TOPIC, Recorder, answers


async def node(url: str, name: str, messages: int, recorder: Recorder, done: asyncio.Event) -> None:
    client = await nats.connect(url)

    async def publish(message: str) -> None:
        recorder.row(name, "publish", message)
        await client.publish(TOPIC, message.encode())

    async def take(msg: Msg) -> None:
        message = msg.data.decode()
        recorder.row(name, "deliver", message)
        if answers(message, name):
            await publish(f"re:{message}:{name}")

    await client.subscribe(TOPIC, cb=take)
    await client.flush()
    await asyncio.sleep(0.2)  # Until all others have subscribed, too.
    for number in range(messages):
        await publish(f"{name}-{number}")
        if number % 5 == 4:
            await client.flush()
    await done.wait()
    await client.close()


async def main(url: str, nodes: int, messages: int, out: Path) -> None:
    recorder, done = Recorder(), asyncio.Event()
    names = [f"n{i}" for i in range(nodes)]
    running = [asyncio.create_task(node(url, name, messages, recorder, done)) for name in names]
    for _ in range(300):  # Half a minute at most; what is missing then is missing.
        await asyncio.sleep(0.1)
        if all(recorder.delivered(name) == recorder.published() >= nodes * messages for name in names):
            break
    done.set()
    await asyncio.gather(*running)
    recorder.write(out)
    print(f"{out}: {recorder.published()} messages, {sum(map(recorder.delivered, names))} deliveries")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("-o", "--out", type=Path, default=Path("nats.jsonl"))
    asked = parser.parse_args()
    asyncio.run(main(asked.url, asked.nodes, asked.messages, asked.out))
