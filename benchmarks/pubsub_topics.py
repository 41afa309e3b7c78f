"""What a topic costs: one client publishes once on each of many new topics, through two brokers in this process.

    python benchmarks/pubsub_topics.py [500 1000 2000]

CPU of client and brokers together, until every publication is safe, and per second of doing nothing afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from ordercast import testing

_IDLE_S = 3.0


async def measure(topics: int) -> tuple[float, float]:
    """CPU seconds until all is safe, and per idle second."""
    async with testing.cluster(2) as cluster, cluster.connect("many", broker="b1") as client:
        begun = time.process_time()
        for number in range(topics):
            client.publish_soon(f"many.{number}", b"x")
        await client.flush(timeout=300)
        busy = time.process_time() - begun
        begun = time.process_time()
        await asyncio.sleep(_IDLE_S)
        return busy, (time.process_time() - begun) / _IDLE_S


def main() -> None:
    print("topics   CPU s until safe   CPU ms per topic   CPU ms per idle second")
    for topics in [int(argument) for argument in sys.argv[1:]] or [500, 1000, 2000]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            busy, idle = runner.run(measure(topics))
        print(f"{topics:6} {busy:18.2f} {busy / topics * 1e3:18.2f} {idle * 1e3:24.1f}")


if __name__ == "__main__":
    main()
