"""Commands of clients: publish and subscribe from a shell."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.exits import VIOLATED
from ordercast.cli.options import Json
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.api import Client, Inbox
    from ordercast.pubsub.publications import Publication

_DEFAULT_BROKER = "127.0.0.1:7000"
_READ_BYTES = 1 << 16

Broker = Annotated[
    list[str] | None, typer.Option("--broker", help=f"HOST:PORT; {_DEFAULT_BROKER} if not given. Repeatable.")
]
ClientId = Annotated[str | None, typer.Option("--id", help="Client id; one is made up if not given.")]
Token = Annotated[str, typer.Option(envvar="ORDERCAST_TOKEN", help="Token of clients, or of the user.")]
User = Annotated[str, typer.Option(help="User that the token belongs to.")]
Data = Annotated[Path | None, typer.Option(help="Directory that makes this client outlive its process.")]
Trace = Annotated[Path | None, typer.Option(help="Run directory to record this client's events in.")]


def pub(
    topic: Annotated[str, typer.Argument(help="Topic to publish on.")],
    message: Annotated[str, typer.Argument(help="The message, or - for one a line from standard input.")] = "-",
    key: Annotated[list[str] | None, typer.Option(help="Key item of the message. Repeatable.")] = None,
    guarantee: Annotated[str, typer.Option(help="eventual, fifo, causal or total.")] = "causal",
    broker: Broker = None,
    client_id: ClientId = None,
    token: Token = "",
    user: User = "",
    data: Data = None,
    trace: Trace = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the ids of the messages.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds for messages to become safe; 0: for ever.")] = 30.0,
) -> None:
    """Publish one message, or one a line from standard input. Prints the ids when the messages are safe.

    Exit 1 if they are not within --timeout: they may still be delivered, or not.
    Example: ordercast pub accounts.PT "deposit 10" --key 162550483 --guarantee total
    """
    import ordercast
    from ordercast.pubsub.filters import check_topic

    check_topic(topic)

    async def main() -> None:
        connecting = ordercast.connect(
            broker or [_DEFAULT_BROKER], client_id, token=token, user=user, data=data, trace=trace
        )
        async with connecting as client:
            lines = _lines() if message == "-" else _only(message.encode())
            try:
                await _publish(client, topic, lines, key or [], guarantee, timeout or None, quiet=quiet)
            except TimeoutError as error:
                typer.echo(str(error), err=True)
                raise typer.Exit(VIOLATED) from None

    _run(main())


async def _publish(
    client: Client, topic: str, lines: AsyncIterator[list[bytes]], keys: list[str], guarantee: str,
    timeout: float | None, *, quiet: bool,
) -> None:  # fmt: skip
    """What is read together is published together, and printed when all of it is safe."""
    async for batch in lines:
        ids = [client.publish_soon(topic, line, keys=keys, guarantee=guarantee) for line in batch]
        await client.drain(timeout)
        if not quiet:
            await client.flush(timeout=timeout)
            sys.stdout.write("".join(f"{message_id}\n" for message_id in ids))
            sys.stdout.flush()
    await client.flush(timeout=timeout)


async def _only(message: bytes) -> AsyncIterator[list[bytes]]:
    yield [message]


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines of standard input, as many at a time as are there."""
    rest = b""
    while data := await asyncio.to_thread(os.read, sys.stdin.fileno(), _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def sub(
    topics: Annotated[list[str], typer.Argument(help="Topics or filters, such as accounts.* or accounts.>")],
    count: Annotated[int, typer.Option(min=0, help="Stop after so many messages; 0: do not.")] = 0,
    timeout: Annotated[float, typer.Option(min=0, help="Stop after so many seconds; 0: do not.")] = 0.0,
    broker: Broker = None,
    client_id: ClientId = None,
    token: Token = "",
    user: User = "",
    data: Data = None,
    trace: Trace = None,
    json: Json = False,
) -> None:
    """Print deliveries, one a line, in delivery order: topic, key and payload, separated by tabs.

    Exit 1 if --timeout ends it before --count is reached.
    Example: ordercast sub "accounts.*" --count 10 --timeout 5
    """
    import ordercast
    from ordercast.pubsub.filters import check_filter

    for topic in topics:
        check_filter(topic)

    async def main() -> int:
        connecting = ordercast.connect(
            broker or [_DEFAULT_BROKER], client_id, token=token, user=user, data=data, trace=trace
        )
        async with connecting as client:
            inboxes = [await client.subscribe(topic) for topic in topics]
            typer.echo(f"subscribed as {client.client_id}", err=True)
            return await _print_deliveries(inboxes, count, timeout, json=json)

    printed = _run(main())
    if printed < count:
        typer.echo(f"{printed} of {count} messages within {timeout:g} s", err=True)
        raise typer.Exit(VIOLATED)


async def _print_deliveries(inboxes: list[Inbox], count: int, timeout: float, *, json: bool) -> int:
    """How many were printed before the count, the timeout or the end came."""
    printed = 0
    arrived: asyncio.Queue[Publication | Exception] = asyncio.Queue(1)
    readers = [asyncio.create_task(_read(inbox, arrived)) for inbox in inboxes]
    try:
        async with asyncio.timeout(timeout or None):
            while not count or printed < count:
                message = await arrived.get()
                if isinstance(message, Exception):
                    raise message
                sys.stdout.write(_as_json(message) if json else _as_line(message))
                sys.stdout.flush()
                printed += 1
    except TimeoutError:
        pass
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return printed


async def _read(inbox: Inbox, arrived: asyncio.Queue[Publication | Exception]) -> None:
    try:
        async for message in inbox:
            await arrived.put(message)
    except (ConnectionError, OSError) as error:
        await arrived.put(error)


def _as_line(message: Publication) -> str:
    payload = message.payload.decode(errors="backslashreplace")
    return "\t".join(map(_printable, (message.topic, ",".join(message.keys), payload))) + "\n"


def _printable(text: str) -> str:
    """What strangers publish must not steer the terminal that it is printed on: control characters are spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _as_json(message: Publication) -> str:
    import msgspec

    told: dict[str, Any] = {
        "id": message.id, "topic": message.topic, "key": message.key, "keys": message.keys,
        "publisher": message.publisher, "guarantee": message.guarantee.label,
    }  # fmt: skip
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_base64"] = message.payload
    return msgspec.json.encode(told).decode() + "\n"


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run on the loop of the TCP runtime; what a broker refuses is one line."""
    import uvloop

    with _one_line(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # A client that is told to stop takes leave, so that nobody waits for it.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return runner.run(main)


@contextmanager
def _one_line() -> Iterator[None]:
    from ordercast.api import PublishRefused, SubscribeDenied

    try:
        yield
    except (PublishRefused, SubscribeDenied, TimeoutError) as error:
        raise UsageError(str(error)) from None
    except BrokenPipeError:
        raise
    except ConnectionError as error:
        raise UsageError(str(error)) from None
