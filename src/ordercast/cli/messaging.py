"""Commands of clients: publish and subscribe from a shell."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.exits import VIOLATED
from ordercast.cli.options import Json
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.api import Client, Inbox, WorkInbox
    from ordercast.api.bridge import ConnectionEvent
    from ordercast.net.wire.credentials import Tls
    from ordercast.pubsub.publications import Publication

_DEFAULT_BROKER = "127.0.0.1:7000"
_READ_BYTES = 1 << 16
_CONNECT_S = 10.0

Broker = Annotated[
    list[str] | None, typer.Option("--broker", help=f"HOST:PORT; {_DEFAULT_BROKER} if not given. Repeatable.")
]
ClientId = Annotated[str | None, typer.Option("--id", help="Client id; one is made up if not given.")]
Token = Annotated[str, typer.Option(envvar="ORDERCAST_TOKEN", help="Token of clients, or of the user.")]
TokenFile = Annotated[Path | None, typer.Option(help="File that holds the token, instead of --token.")]
UseTls = Annotated[bool, typer.Option("--tls", help="Connect with TLS; the system's authorities are believed.")]
Ca = Annotated[Path | None, typer.Option(help="Connect with TLS; the authorities in this file (PEM) are believed.")]
Cert = Annotated[Path | None, typer.Option(help="Own certificate (PEM), where brokers ask for one; with --cert-key.")]
CertKey = Annotated[Path | None, typer.Option(help="Key of the own certificate (PEM).")]
User = Annotated[str, typer.Option(help="User that the token belongs to.")]
Data = Annotated[Path | None, typer.Option(help="Directory that makes this client outlive its process.")]
Trace = Annotated[Path | None, typer.Option(help="Run directory to record this client's events in.")]


def default_brokers(broker: list[str] | None) -> list[str]:
    return broker or [_DEFAULT_BROKER]


def pub(
    topic: Annotated[str, typer.Argument(help="Topic to publish on.")],
    message: Annotated[str, typer.Argument(help="The message, or - for one a line from standard input.")] = "-",
    key: Annotated[list[str] | None, typer.Option(help="Key item of the message. Repeatable.")] = None,
    guarantee: Annotated[str, typer.Option(help="eventual, fifo, causal or total.")] = "causal",
    broker: Broker = None,
    client_id: ClientId = None,
    token: Token = "",
    token_file: TokenFile = None,
    user: User = "",
    tls: UseTls = False,
    ca: Ca = None,
    cert: Cert = None,
    cert_key: CertKey = None,
    data: Data = None,
    trace: Trace = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the ids of the messages.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds for messages to become safe; 0: for ever.")] = 30.0,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE beside the message. Repeatable.")] = None,
    expires_after: Annotated[float | None, typer.Option(help="Seconds after which nobody is handed it.")] = None,
    dedup: Annotated[str, typer.Option(help="Idempotence id: messages with the same one count once.")] = "",
) -> None:
    """Publish one message, or one a line from standard input. Prints the ids when the messages are safe.

    Exit 1 if they are not within --timeout: they may still be delivered, or not.
    Example: ordercast pub accounts.PT "deposit 10" --key 162550483 --guarantee total
    """
    import ordercast
    from ordercast.api.options import extras_of, level_of
    from ordercast.pubsub.filters import check_topic

    check_topic(topic)
    level_of(guarantee)  # Said before anybody is dialed.
    headers = parsed_headers(header or [])
    extras_of(headers, expires_after, dedup, 0)
    if dedup and message == "-":
        raise UsageError("--dedup: one message has the id; standard input may have many")

    secure = tls_of(ca, cert, cert_key, asked=tls)
    secret = secret_of(token, token_file)

    async def main() -> None:
        connecting = ordercast.connect(
            broker or [_DEFAULT_BROKER], client_id, token=secret, user=user, tls=secure, data=data, trace=trace,
            timeout=min(timeout, _CONNECT_S) if timeout else _CONNECT_S,
        )  # fmt: skip
        async with connecting as client:
            lines = _lines() if message == "-" else _only(message.encode())
            try:
                options: dict[str, Any] = {"keys": key or [], "guarantee": guarantee, "dedup": dedup}
                options |= {"headers": headers or None, "expires_after": expires_after}
                await _publish(client, topic, lines, options, timeout or None, quiet=quiet)
            except TimeoutError as error:
                typer.echo(str(error), err=True)
                raise typer.Exit(VIOLATED) from None

    run_client(main())


async def _publish(
    client: Client, topic: str, lines: AsyncIterator[list[bytes]], options: dict[str, Any], timeout: float | None, *,
    quiet: bool,
) -> None:  # fmt: skip
    """Publish what is read together, together, and print it when all of it is safe."""
    async for batch in lines:
        ids = [client.publish_soon(topic, line, **options) for line in batch]
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
    start: Annotated[
        str, typer.Option("--from", help="Kept topics: earliest, last-of-each-key, a time, or a position.")
    ] = "now",
    broker: Broker = None,
    client_id: ClientId = None,
    token: Token = "",
    token_file: TokenFile = None,
    user: User = "",
    tls: UseTls = False,
    ca: Ca = None,
    cert: Cert = None,
    cert_key: CertKey = None,
    data: Data = None,
    trace: Trace = None,
    json: Json = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print time of publication and headers too.")] = False,
    group: Annotated[str | None, typer.Option(help="Share the work: each message to one member of the group.")] = None,
) -> None:
    """Print deliveries, one a line, in delivery order: topic, key and payload, separated by tabs.

    With --group a message is done when it is printed.
    With --headers also when it was published and its headers; --json always has them.
    Exit 1 if --timeout ends it before --count is reached.
    Example: ordercast sub "accounts.*" --count 10 --timeout 5
    """
    import ordercast
    from ordercast.pubsub.filters import check_filter

    for topic in topics:
        check_filter(topic)
    from ordercast.api.starts import parsed_start

    begin = parsed_start(start)

    secure = tls_of(ca, cert, cert_key, asked=tls)
    secret = secret_of(token, token_file)
    end = time.monotonic() + timeout

    async def main() -> int:
        connecting = ordercast.connect(
            broker or [_DEFAULT_BROKER], client_id, token=secret, user=user, tls=secure, data=data, trace=trace,
            timeout=min(timeout, _CONNECT_S) if timeout else _CONNECT_S,
        )  # fmt: skip
        async with connecting as client:
            client.on_event(_tell_of_connection)
            inboxes = [await _subscribe(client, topic, begin, group) for topic in topics]
            typer.echo(f"subscribed as {client.client_id}", err=True)
            left = max(end - time.monotonic(), 0.001) if timeout else None
            written = as_json if json else as_full_line if headers else as_line
            return await _print_deliveries(inboxes, count, left, written)

    printed = run_client(main())
    if printed < count:
        typer.echo(f"{printed} of {count} messages within {timeout:g} s", err=True)
        raise typer.Exit(VIOLATED)


async def _subscribe(client: Client, topic: str, start: Any, group: str | None) -> Inbox | WorkInbox:
    if group is None:
        return await client.subscribe(topic, start=start)
    return await client.subscribe(topic, start=start, group=group)


def _tell_of_connection(event: ConnectionEvent) -> None:
    if event.kind == "disconnected":
        typer.echo(f"lost the broker ({event.detail}); looking for another", err=True)
    elif event.kind == "connected":
        typer.echo(f"found broker {event.detail}", err=True)


def secret_of(token: str, token_file: Path | None) -> str:
    """The token, from its option or its file: one on a command line can be read by everybody on the machine."""
    if token_file is None:
        return token
    try:
        return token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {token_file}: {error}") from None


def tls_of(ca: Path | None, cert: Path | None, cert_key: Path | None, *, asked: bool) -> Tls | None:
    from ordercast.net.wire.credentials import Tls

    if (cert is None) != (cert_key is None):
        raise UsageError("--cert and --cert-key: one needs the other")
    if not (asked or ca or cert):
        return None
    secure = Tls(ca=str(ca or ""), cert=str(cert or ""), key=str(cert_key or ""))
    secure.client_context()  # A file that is missing or no certificate is said before anybody is dialed.
    return secure


async def _print_deliveries(
    inboxes: list[Inbox | WorkInbox], count: int, timeout: float | None, written: Callable[[Publication], str]
) -> int:
    """Print deliveries until the count, the timeout or the end comes; returns how many."""
    from ordercast.api import Work

    printed = 0
    arrived: asyncio.Queue[Publication | Exception] = asyncio.Queue(1)
    readers = [asyncio.create_task(_read(inbox, arrived)) for inbox in inboxes]
    try:
        async with asyncio.timeout(timeout):
            while not count or printed < count:
                message = await arrived.get()
                if isinstance(message, Exception):
                    raise message
                sys.stdout.write(written(message))
                sys.stdout.flush()
                printed += 1
                if isinstance(message, Work):
                    await message.done()
    except TimeoutError:
        pass
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return printed


async def _read(inbox: Inbox | WorkInbox, arrived: asyncio.Queue[Publication | Exception]) -> None:
    try:
        async for message in inbox:
            await arrived.put(message)
    except (ConnectionError, OSError, LookupError, UsageError) as error:
        await arrived.put(error)


def parsed_headers(given: list[str]) -> dict[bytes, bytes]:
    """`NAME=VALUE`, each name once."""
    headers: dict[bytes, bytes] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name or name.encode() in headers:
            raise UsageError(f"--header {one!r}: NAME=VALUE is needed, each name once")
        headers[name.encode()] = value.encode()
    return headers


def as_line(message: Publication) -> str:
    return _line(message.topic, ",".join(message.keys), _text(message.payload))


def as_full_line(message: Publication) -> str:
    """With the time of publication and the headers, before the payload."""
    headers = ",".join(f"{_text(name)}={_text(value)}" for name, value in message.headers.items())
    when = message.published_at.isoformat(timespec="milliseconds")
    return _line(message.topic, ",".join(message.keys), when, headers, _text(message.payload))


def _line(*parts: str) -> str:
    return "\t".join(map(_printable, parts)) + "\n"


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _printable(text: str) -> str:
    """A text with its control characters spelled out: strangers must not steer the terminal it is printed on."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def as_json(message: Publication) -> str:
    import msgspec

    told: dict[str, Any] = {
        "id": message.id, "topic": message.topic, "key": message.key, "keys": message.keys,
        "publisher": message.publisher, "guarantee": message.guarantee.label,
        "published_at": message.published_at.isoformat(),
    }  # fmt: skip
    if message.extras is not None:
        told |= {"headers": {_text(name): _text(value) for name, value in message.headers.items()}}
        if message.expires_at is not None:
            told["expires_at"] = message.expires_at.isoformat()
        if message.dedup:
            told["dedup"] = message.dedup
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_base64"] = message.payload
    return msgspec.json.encode(told).decode() + "\n"


def run_client(main: Coroutine[Any, Any, Any]) -> Any:
    """Run on the loop of the TCP runtime; what a broker refuses is one line."""
    import uvloop

    with one_line(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # A client that is told to stop takes leave, so that nobody waits for it.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return runner.run(main)


@contextmanager
def one_line() -> Iterator[None]:
    from ordercast.api import HistoryLost, PublishRefused, SubscribeDenied

    try:
        yield
    except (HistoryLost, PublishRefused, SubscribeDenied, TimeoutError) as error:
        raise UsageError(str(error)) from None
    except BrokenPipeError:
        raise
    except ConnectionError as error:
        raise UsageError(str(error)) from None
