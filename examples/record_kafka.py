"""Records what clients of Kafka publish and get, for `ordercast verify`: which orders do they keep?

    python examples/record_kafka.py broker1:9092 --partitions 4 -o kafka.jsonl     # needs confluent-kafka
    ordercast verify kafka.jsonl --complete --no-spark

Several clients publish on one topic at once, each on a partition of its own as far as there are enough, read all
partitions, and answer some of what they get. The topic (`board`) must have as many partitions. With `mock` in the place
of an address the brokers are those that come with librdkafka for tests: they speak Kafka's protocol, but are not Kafka.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from recorder import TOPIC, Recorder, answers


class Node:
    """One client: a producer, and a consumer in a thread of its own that reads every partition from its beginning."""

    def __init__(self, number: int, servers: str, partitions: int, recorder: Recorder) -> None:
        self.name, self.partition, self.recorder = f"n{number}", number % partitions, recorder
        self.over = threading.Event()
        self.producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1})
        self.consumer = Consumer({"bootstrap.servers": servers, "group.id": self.name, "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(partitions)])
        self.thread = threading.Thread(target=self.take)
        self.thread.start()

    def publish(self, message: str) -> None:
        self.recorder.row(self.name, "publish", message)
        self.producer.produce(TOPIC, message.encode(), partition=self.partition)
        self.producer.poll(0)

    def take(self) -> None:
        while not self.over.is_set():
            found = self.consumer.poll(0.1)
            if found is None or found.error():
                continue  # Nothing, or what the library tries again by itself.
            text = (found.value() or b"").decode()
            self.recorder.row(self.name, "deliver", text)
            if answers(text, self.name):
                self.publish(f"re:{text}:{self.name}")

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        self.producer.flush(10)
        self.consumer.close()


def mock_servers() -> tuple[Producer, str]:
    """Brokers inside this process, which live as long as the producer that is given back."""
    owner = Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    return owner, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def record(servers: str, asked: argparse.Namespace, recorder: Recorder) -> None:
    nodes = [Node(number, servers, asked.partitions, recorder) for number in range(asked.nodes)]
    for number in range(asked.messages):
        for node in nodes:
            node.publish(f"{node.name}-{number}")
        time.sleep(0.002)
    end = time.monotonic() + 60  # What is missing then is missing.
    while time.monotonic() < end and any(recorder.delivered(node.name) < recorder.published() for node in nodes):
        time.sleep(0.1)
    for node in nodes:
        node.close()
    recorder.write(asked.out)
    count = sum(recorder.delivered(node.name) for node in nodes)
    print(f"{asked.out}: {recorder.published()} messages, {count} deliveries")


def main(asked: argparse.Namespace, recorder: Recorder) -> None:
    if asked.servers != "mock":
        record(asked.servers, asked, recorder)
        return
    owner, servers = mock_servers()
    record(servers, asked, recorder)
    owner.flush(0)  # The brokers inside this process go when it goes: after all clients.


def arguments(out: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers", help="HOST:PORT of brokers, with commas between them; or mock")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("-o", "--out", type=Path, default=Path(out))
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments("kafka.jsonl"), Recorder())
