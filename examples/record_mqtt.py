"""Records what clients of an MQTT broker publish and get, for `ordercast verify`: which orders does it keep?

    mosquitto -p 1883 &
    python examples/record_mqtt.py 127.0.0.1 1883 --qos 1 -o mqtt.jsonl     # needs paho-mqtt
    ordercast verify mqtt.jsonl --complete --no-spark

Several clients publish on one topic at once, and answer some of what they get. With `--cut` the last of them loses its
connection now and then, and comes back to its session, as a client on a bad line does.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from recorder import TOPIC, Recorder, answers


class Node:
    """One client; paho runs its callbacks in a thread of its own."""

    def __init__(self, name: str, host: str, port: int, qos: int, recorder: Recorder) -> None:
        self.name, self.qos, self.recorder = name, qos, recorder
        self.ready = threading.Event()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self.client.max_inflight_messages_set(1000)
        self.client.on_connect = lambda *_: self.client.subscribe(TOPIC, qos)
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.on_message = self.take
        self.client.reconnect_delay_set(1, 1)
        self.client.connect(host, port)
        self.client.loop_start()

    def publish(self, message: str) -> None:
        self.recorder.row(self.name, "publish", message)
        self.client.publish(TOPIC, message, self.qos)

    def take(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        text = message.payload.decode()
        self.recorder.row(self.name, "deliver", text)
        if answers(text, self.name):
            self.publish(f"re:{text}:{self.name}")

    def cut(self) -> None:
        """The line is gone, without a word."""
        line = self.client.socket()
        if line is not None:
            line.shutdown(socket.SHUT_RDWR)


def main(asked: argparse.Namespace) -> None:
    recorder = Recorder()
    nodes = [Node(f"n{i}", asked.host, asked.port, asked.qos, recorder) for i in range(asked.nodes)]
    for node in nodes:
        node.ready.wait(10)
    for number in range(asked.messages):
        for node in nodes:
            node.publish(f"{node.name}-{number}")
        if asked.cut and number % 10 == 9:
            nodes[-1].cut()
        time.sleep(0.002)
    end = time.monotonic() + 30  # What is missing then is missing.
    while time.monotonic() < end and any(recorder.delivered(node.name) < recorder.published() for node in nodes):
        time.sleep(0.1)
    for node in nodes:
        node.client.loop_stop()
    recorder.write(asked.out)
    count = sum(recorder.delivered(node.name) for node in nodes)
    print(f"{asked.out}: {recorder.published()} messages, {count} deliveries")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("-o", "--out", type=Path, default=Path("mqtt.jsonl"))
    main(parser.parse_args())
