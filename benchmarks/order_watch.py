"""A day of traffic through the watch of `ordercast monitor`: how fast it is, what it remembers, and that it is silent.

    python benchmarks/order_watch.py [--nodes 10] [--rate 10] [--hours 24]

Nodes publish in turn, `rate` messages a second together, on four topics with all guarantees; every node delivers
everything, each at its own pace, in an order that all guarantees allow. Rows are made as the monitor hands them over,
an hour of the day at a time. Beside it: the time that decoding the same rows from a journal takes, which is a limit.
"""

from __future__ import annotations

import argparse
import random
import resource
import time

import msgspec

from ordercast.trace.journal import Row
from ordercast.verify.online import OnlineRow, OrderWatch

LEVELS = ("eventual", "fifo", "causal", "total")


class Day:
    """The traffic; all nodes deliver in the order of publication, none further than the last one published."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"n{i}" for i in range(nodes)]
        self.numbers: dict[tuple[str, str], int] = {}
        self.order: list[tuple[str, str, str]] = []
        self.taken = dict.fromkeys(self.names, 0)
        self.now = 0
        self.chance = random.Random(0)

    def begin(self) -> dict[str, list[OnlineRow]]:
        rows = {}
        for name in self.names:
            topics = [OnlineRow("subscribe", 0, topic=f"t{i}") for i in range(4)]
            rows[name] = [OnlineRow("join", 0, info={"boot": "b"}), *topics]
        return rows

    def stretch(self, messages: int) -> dict[str, list[OnlineRow]]:
        """So many publications more, and the deliveries until then."""
        rows: dict[str, list[OnlineRow]] = {name: [] for name in self.names}
        for _ in range(messages):
            self.now += 1
            name = self.names[self.now % len(self.names)]
            self._catch_up(name, rows[name])  # It knows what it answers.
            topic = f"t{self.chance.randrange(4)}"
            number = self.numbers[name, topic] = self.numbers.get((name, topic), 0) + 1
            message, level = f"{name}~1/{topic}#{number}", LEVELS[self.chance.randrange(4)]
            rows[name].append(OnlineRow("publish", self.now, message, topic, ("k",), level))
            self.order.append((message, topic, level))
        self.order, gone = self.order[min(self.taken.values()) :], min(self.taken.values())
        self.taken = {name: count - gone for name, count in self.taken.items()}
        return rows

    def _catch_up(self, name: str, rows: list[OnlineRow]) -> None:
        for message, topic, level in self.order[self.taken[name] :]:
            rows.append(OnlineRow("deliver", self.now, message, topic, (), level))
        self.taken[name] = len(self.order)


def decoding(rows: list[OnlineRow]) -> float:
    """CPU seconds that reading these rows from a journal takes."""
    lines = [msgspec.json.encode(Row(row.kind, row.time_ns, row.msg, row.topic)) for row in rows]
    decode = msgspec.json.Decoder(Row).decode
    begun = time.process_time()
    for line in lines:
        decode(line)
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rate", type=int, default=10)
    parser.add_argument("--hours", type=int, default=24)
    asked = parser.parse_args()
    day, watch = Day(asked.nodes), OrderWatch()
    alarms, spent, limit, rows = len(watch.feed(day.begin())), 0.0, 0.0, 0
    memory = []
    for hour in range(asked.hours):
        for _ in range(60):
            piece = day.stretch(60 * asked.rate)
            begun = time.process_time()
            alarms += len(watch.feed(piece))
            spent += time.process_time() - begun
            rows += sum(map(len, piece.values()))
            limit += decoding(piece[day.names[0]]) * asked.nodes if hour == 0 else 0.0
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
    per_row = spent / rows
    print(f"{watch.counts['delivered']:,} deliveries of {asked.nodes} nodes in {asked.hours} h: {alarms} alarms")
    print(f"{1 / per_row:,.0f} rows per CPU second; decoding the rows: {rows / asked.hours / limit:,.0f}")
    print(f"memory in MB after each hour: {memory}")


if __name__ == "__main__":
    main()
