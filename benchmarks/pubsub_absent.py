"""What a dead subscriber costs the others: the longest wait of a total after SIGKILL of one member.

    python benchmarks/pubsub_absent.py [runs]

Three broker processes with the settings that users have; one client publishes a total every 50 ms and waits until it
has it back. After a second another subscriber, a process at another broker, is killed. `cover` is the default, `wait`
the behaviour without it, in the same run.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

from pubsub_cluster import brokers, chain

import ordercast

_BEFORE, _AFTER = 20, 20
_PAUSE_S = 0.05
_SUBSCRIBER = """
import asyncio, sys, ordercast
async def main():
    async with ordercast.connect(sys.argv[1], client_id="victim") as client:
        inbox = await client.subscribe("t")
        print("in", flush=True)
        async for _ in inbox:
            pass
asyncio.run(main())
"""


async def longest_wait_s(addresses: list[str]) -> tuple[float, float]:
    """Of a total, with everybody there and after the death of one."""
    victim = subprocess.Popen([sys.executable, "-c", _SUBSCRIBER, addresses[-1]], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    await asyncio.to_thread(victim.stdout.readline)
    try:
        async with ordercast.connect(addresses[0], client_id="steady") as client:
            inbox = await client.subscribe("t")
            calm = [await _round_trip_s(client, inbox) for _ in range(_BEFORE)]
            victim.kill()
            shaken = [await _round_trip_s(client, inbox) for _ in range(_AFTER)]
        return max(calm), max(shaken)
    finally:
        victim.kill()
        victim.wait()


async def _round_trip_s(client: ordercast.Client, inbox: ordercast.Inbox) -> float:
    begun = time.perf_counter()
    client.publish_soon("t", b"x", guarantee="total")
    await inbox.get(60)
    took = time.perf_counter() - begun
    await asyncio.sleep(_PAUSE_S)
    return took


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("absent_member   longest wait of a total, ms: nobody dead   after kill -9   (median of runs)")
    for mode in ("wait", "cover"):
        found = []
        for _ in range(runs):
            with brokers(chain(3), "[settings]", f'absent_member = "{mode}"') as (_, addresses):
                found.append(asyncio.run(longest_wait_s(addresses)))
        calm, shaken = (statistics.median(column) * 1e3 for column in zip(*found, strict=True))
        print(f"{mode:13} {calm:44.1f} {shaken:15.1f}", flush=True)


if __name__ == "__main__":
    main()
