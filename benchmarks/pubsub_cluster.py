"""Broker processes for the benchmarks, with all defaults, until a block ends."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pubsub_peers import free_port

from ordercast.net.brokers.cluster import BrokerCluster


def describe(parents: list[int | None], addresses: list[str], *settings: str) -> str:
    """A cluster file: broker i is called b<i>."""
    lines = ['cluster = "bench"', *settings]
    for i, (parent, address) in enumerate(zip(parents, addresses, strict=True)):
        above = [f'parent = "b{parent}"'] if parent is not None else []
        lines += ["[[broker]]", f'id = "b{i}"', f'listen = "{address}"', *above]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def brokers(parents: list[int | None], *settings: str) -> Iterator[tuple[BrokerCluster, list[str]]]:
    """The running cluster and the addresses of its brokers."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "cluster.toml"
        addresses = [f"127.0.0.1:{free_port()}" for _ in parents]
        file.write_text(describe(parents, addresses, *settings))
        cluster = BrokerCluster(file)
        try:
            cluster.up()
            if not cluster.await_tree():
                raise TimeoutError("the brokers did not form a tree")
            yield cluster, addresses
        finally:
            cluster.down()


def chain(length: int) -> list[int | None]:
    return [None, *range(length - 1)]


def pids(cluster: BrokerCluster) -> list[int]:
    found = [cluster.process(entry.id) for entry in cluster.config.broker]
    return [process.pid for process in found if process is not None]
