"""A program without asyncio.

It needs a broker:  ordercast broker --id b0 --listen 127.0.0.1:7000
Run:                python examples/pubsub_blocking.py 127.0.0.1:7000
"""

from __future__ import annotations

import sys

import ordercast


def main(address: str) -> None:
    with ordercast.blocking.connect(address) as client:
        inbox = client.subscribe("greetings")
        for name in ("ann", "bob", "cho"):
            client.publish_soon("greetings", f"hello {name}".encode())
        client.flush()
        for _ in range(3):
            print(inbox.get(timeout=10).payload.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7000")
