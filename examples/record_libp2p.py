"""Records nodes of libp2p that gossip, as the trace events that pubsub's JSON tracer writes: which orders do they keep?

    python examples/record_libp2p.py -o libp2p.json      # needs libp2p (py-libp2p)
    ordercast verify --from-format libp2p libp2p.json --complete --checks integrity,agreement,fifo,causal

Several nodes on loopback, connected in a ring, join one topic, publish at once and answer some of what they get. The
id of a message is a hash of its data, so that whoever publishes knows it. py-libp2p has no tracer of its own: events
are written before a message leaves and as soon as the subscription has brought one. It drops what a peer sends faster
than ten messages a second on a topic: with `--pause 0.05` that happens.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr
from recorder import TOPIC, answers

TYPES = {"publishMessage": 0, "deliverMessage": 3, "join": 9, "leave": 10}


def name_of(message: Any) -> bytes:
    return hashlib.sha256(message.data).digest()[:9]


class Node:
    """One node: a host, its pubsub, and the events that its tracer would have written."""

    def __init__(self, number: int, events: list[dict[str, Any]]) -> None:
        self.name = f"n{number}"
        seed = hashlib.sha256(self.name.encode()).digest()
        self.host = new_host(key_pair=create_new_key_pair(seed))
        gossip = GossipSub([PROTOCOL_ID], degree=3, degree_low=2, degree_high=4, heartbeat_interval=1)
        self.pubsub = Pubsub(self.host, gossip, msg_id_constructor=name_of)
        self.gossip = gossip
        self.events = events
        self.delivered = 0
        self.sent = False

    def event(self, field: str, **about: str) -> None:
        peer = base64.b64encode(self.host.get_id().to_bytes()).decode()
        row = {"type": TYPES[field], "peerID": peer, "timestamp": time.time_ns(), field: about | {"topic": TOPIC}}
        self.events.append(row)

    async def publish(self, text: str) -> None:
        name = hashlib.sha256(text.encode()).digest()[:9]
        self.event("publishMessage", messageID=base64.b64encode(name).decode())
        await self.pubsub.publish(TOPIC, text.encode())

    async def take(self, subscription: Any) -> None:
        while True:
            message = await subscription.get()
            self.event("deliverMessage", messageID=base64.b64encode(name_of(message)).decode())
            self.delivered += 1
            text = message.data.decode()
            if answers(text, self.name):
                await self.publish(f"re:{text}:{self.name}")

    async def run(self, asked: argparse.Namespace, others: list[Node], ready: trio.Event, over: trio.Event) -> None:
        async with (
            self.host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]),
            background_trio_service(self.pubsub),
            background_trio_service(self.gossip),
            trio.open_nursery() as nursery,
        ):
            await self.pubsub.wait_until_ready()
            await trio.sleep(0.5)  # Until all others listen.
            following = others[(others.index(self) + 1) % len(others)]
            address = following.host.get_addrs()[0]
            await self.host.connect(info_from_p2p_addr(address))
            subscription = await self.pubsub.subscribe(TOPIC)
            self.event("join")
            nursery.start_soon(self.take, subscription)
            await ready.wait()
            for number in range(asked.messages):
                await self.publish(f"{self.name}-{number}")
                await trio.sleep(asked.pause)
            self.sent = True
            await over.wait()
            self.event("leave")
            nursery.cancel_scope.cancel()


async def main(asked: argparse.Namespace) -> None:
    events: list[dict[str, Any]] = []
    nodes = [Node(number, events) for number in range(asked.nodes)]
    ready, over = trio.Event(), trio.Event()
    with trio.move_on_after(60):  # What is missing then is missing.
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(node.run, asked, nodes, ready, over)
            await trio.sleep(5)  # Until the mesh has formed.
            ready.set()
            for _ in range(300):
                await trio.sleep(0.1)
                published = sum(1 for event in events if "publishMessage" in event)
                if all(node.sent and node.delivered == published for node in nodes):
                    break
            over.set()
    asked.out.write_text("".join(json.dumps(event) + "\n" for event in events))
    print(f"{asked.out}: {published} messages, {sum(node.delivered for node in nodes)} deliveries")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--messages", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two messages of a node")
    parser.add_argument("-o", "--out", type=Path, default=Path("libp2p.json"))
    trio.run(main, parser.parse_args())
