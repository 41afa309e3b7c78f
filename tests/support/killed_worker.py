"""A worker as a program of its own, to be killed: `killed_worker.py ADDRESS NAME DIARY`.

It writes down in the diary what it begins and what is done for good, one line each.
"""

from __future__ import annotations

import os
import sys

import ordercast
from ordercast.client.work.leader import WorkSettings

WORK = WorkSettings(silent_ms=1500, window=8)


def main(address: str, name: str, diary: str) -> None:
    book = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with ordercast.blocking.connect(address, name) as client:
        inbox = client.subscribe("orders", group="workers", start="earliest", work=WORK)
        os.write(book, f"here {name} - 0\n".encode())
        for message in inbox:
            os.write(book, f"begun {name} {message.key} {message.payload.decode()}\n".encode())
            message.done()
            os.write(book, f"done {name} {message.key} {message.payload.decode()}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
