"""`connect`: its options, the checks on them, and the way from an address to a connected client."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.api.bridge import Bridge
from ordercast.api.client import Client
from ordercast.api.errors import ConnectError
from ordercast.api.ledger import SqliteLedger
from ordercast.api.messages import Duplicates
from ordercast.api.outbox import OutboxRoom
from ordercast.client.machine import CLIENT_CODEC, ClientMachine
from ordercast.client.membership import LIVE
from ordercast.client.ports import SavedClient
from ordercast.client.settings import ClientSettings
from ordercast.core.errors import UsageError
from ordercast.core.ids import origin_of, valid_node
from ordercast.core.process import Peer, Wires
from ordercast.net.host import ProcessHost
from ordercast.net.wire.credentials import CLIENT, Credentials, Tls, split_address
from ordercast.net.wire.settings import WireSettings

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

_EPOCH_MS = 1_767_225_600_000
"""2026-01-01: sessions begin with the milliseconds since then, so that a later one is higher."""
_ID_BYTES = 5
_CHANCE_BITS = 20
"""Of the number of a session: what tells apart two clients of one name that begin in the same millisecond."""
_SKEW_MS = 60_000
"""How far the clocks of clients and brokers may be apart."""
_ANSWER_S = 2.0
"""How long a client that comes back waits for the word whether its session is still good."""
_LONGEST_ID = 128


class Connecting:
    """`async with connect(...) as client`, or `client = await connect(...)` and `await client.close()` later."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return _connect(self._options).__await__()

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `connect` was told."""

    addresses: tuple[str, ...]
    client_id: str | None
    token: str
    user: str
    tls: Tls | None
    data: Path | None
    trace: Path | None
    timeout: float
    cluster: str
    outbox_limit: int
    outbox_bytes: int = 1 << 25
    settings: ClientSettings
    wire: WireSettings
    housemate: ProcessHost | None = None


def connect_within(
    broker: ProcessHost, *, user: str, token: str, wire: WireSettings, outbox_limit: int, tls: Tls | None
) -> Connecting:
    """Connect to a broker of this very process on somebody else's behalf, with that one's credentials."""
    return Connecting(
        ConnectOptions(
            addresses=(broker.me.address,), client_id=None, token=token, user=user, tls=tls, data=None, trace=None,
            timeout=10.0, cluster=broker.credentials.cluster, outbox_limit=outbox_limit, wire=wire, housemate=broker,
            settings=ClientSettings(consumes_at_once=False, folds=True),
        )
    )  # fmt: skip


def connect(
    address: str | Iterable[str], client_id: str | None = None, *, token: str = "", user: str = "",
    tls: Tls | None = None, data: str | Path | None = None, trace: str | Path | None = None, timeout: float = 10.0,
    cluster: str = "", outbox_limit: int = 100_000, outbox_bytes: int = 1 << 25, settings: ClientSettings | None = None,
    wire: WireSettings | None = None,
) -> Connecting:  # fmt: skip
    """Connect to a broker, `HOST:PORT`, or to the first of several that answers.

    From then on the client finds another broker by itself whenever it loses the one it has.

    Args:
        address: one address or several.
        client_id: the name others see as `publisher`; a unique one is made up if there is none.
        token: what proves that this client may connect; `user` says whose token it is, if not the client's own.
        user: the user that the brokers know the token of; the client id if empty.
        tls: certificates, if the brokers want TLS.
        data: a directory where the client keeps what it must not forget. A client that is started again with the same
            directory goes on where it stopped: nothing that it published is lost. What it has read does not come again,
            but for what it read last before a kill: a message counts as read when the next one is asked for, and that
            is written down at the end of the loop's turn. An application that must not act twice keeps the ids of what
            it has done with its own data (`message.id`). Away for longer than the brokers' member timeout it becomes a
            new session, and finds what was never called safe in `client.unanswered`; on kept topics it goes on through
            the history, on others it may have missed messages and is told so (HistoryLost). Without a directory every
            connect is a new session.
        trace: a directory where the client records what it publishes and receives, for `ordercast verify`.
        timeout: seconds to find a broker.
        cluster: the name of the cluster, if it must be that one.
        outbox_limit: publications that may wait for the broker tree before `publish` and `drain` wait.
        outbox_bytes: the same in bytes, of payloads above 4 KiB; 32 MiB unless it says otherwise.
        settings: the client's own timers.
        wire: limits of its connections.
    """
    addresses = (address,) if isinstance(address, str) else tuple(address)
    if not addresses:
        raise UsageError("address: none is given")
    for one in addresses:
        split_address(one)
    if client_id is not None and (not valid_node(client_id) or len(client_id) > _LONGEST_ID):
        raise UsageError(f"client_id: {client_id[:40]!r} is empty, too long, or has a character that is not allowed")
    for name, limit in (("outbox_limit", outbox_limit), ("outbox_bytes", outbox_bytes)):
        if limit < 1:
            raise UsageError(f"{name}: {limit} is less than 1: nothing could ever be published")
    own = settings if settings is not None else ClientSettings()
    return Connecting(
        ConnectOptions(
            addresses=addresses, client_id=client_id, token=token, user=user, tls=tls,
            data=Path(data) if data is not None else None, trace=Path(trace) if trace is not None else None,
            timeout=timeout, cluster=cluster, outbox_limit=outbox_limit, outbox_bytes=outbox_bytes,
            settings=msgspec.structs.replace(own, consumes_at_once=False, folds=True),
            wire=wire if wire is not None else WireSettings(),
        )
    )  # fmt: skip


async def _connect(options: ConnectOptions, *, renewed: bool = False, above: int = 0) -> Client:
    """`renewed`: the brokers have just given up the session of this directory, and the application does not know.

    `above`: the number of the session is higher.
    """
    ledger = SqliteLedger(options.data) if options.data is not None else None
    client_id, session, saved, kept = _identity(options, ledger, renewed=renewed, above=above)
    bridge = Bridge(origin_of(client_id, session), durable=ledger is not None)  # type: ignore[arg-type]
    if saved is not None and ledger is not None:
        bridge.subscriptions.duplicates = Duplicates(ledger, ledger.dedups())
        bridge.subscriptions.one_by_one = True
        bridge.subscriptions.expected = {
            topic: [] for topic, kept in saved.topics.items() if kept.receives or kept.replay is not None
        }
        bridge.subscriptions.expected_filters = set(saved.watched)
        for topic in saved.gaps:
            bridge.missed(topic)
    credentials = Credentials(
        cluster=options.cluster, client_token=options.token, user=options.user or client_id, tls=options.tls
    )
    journal = _journal(options, client_id, session, saved if kept else None)

    def build(wires: Wires) -> ClientMachine:
        return ClientMachine(client_id, session, options.addresses, wires, bridge, options.settings, saved, ledger)

    me = Peer(CLIENT, client_id, session)
    host = ProcessHost(
        me, build, CLIENT_CODEC, options.wire, credentials=credentials, journal=journal, ledger=ledger,
        housemate=options.housemate,
    )  # fmt: skip
    await host.start()
    bridge.journal = journal  # What was delivered in an earlier life is on record already.
    machine = host.machine
    assert isinstance(machine, ClientMachine)
    room = OutboxRoom(machine.topics, options.outbox_limit, options.outbox_bytes)
    client = Client(host, machine, bridge, room=room, ledger=ledger)
    client.make_other = partial(_other, options, machine)
    try:
        await _until_connected(bridge, options)
        lost = kept and saved is not None and await _given_up(bridge, machine)
    except BaseException:
        await client.abandon()
        raise
    if lost:  # The data directory goes on with a new session.
        await client.close()
        return await _connect(options, renewed=True)
    return client


async def _other(options: ConnectOptions, machine: ClientMachine, name: str, above: int) -> Client:
    """A client of the same user under another name, at one of the brokers that are known by now."""
    own = f"{options.user}.{name}" if options.user else name
    known = (*options.addresses, *(address for _, address in machine.edge.candidates.view.directory))
    theirs = msgspec.structs.replace(
        options, addresses=tuple(dict.fromkeys(known)), client_id=own, data=None, trace=None
    )
    return await _connect(theirs, above=above)


def _new_session() -> int:
    """A number that no other session of the same client name has; a later one is higher."""
    return (time.time_ns() // 1_000_000 - _EPOCH_MS << _CHANCE_BITS) + secrets.randbits(_CHANCE_BITS)


def _identity(
    options: ConnectOptions, ledger: SqliteLedger | None, *, renewed: bool, above: int
) -> tuple[str, int, SavedClient | None, bool]:
    """This client's session: the one that the data directory holds, or a new one that nobody has ever been.

    The last part says whether it is one that was there before.
    """
    now = max(above + 1, _new_session())
    if ledger is None:
        if options.client_id is not None:
            return options.client_id, now, None, False
        # A name that nobody else has needs no number of a life.
        return _made_up(options), 0, None, False
    known = ledger.fact("client")
    if known is not None and options.client_id not in (None, known):
        ledger.close()
        raise UsageError(f"client_id: {options.data} belongs to client {known!r}, not {options.client_id!r}")
    client = str(known or options.client_id or _made_up(options))
    fresh = known is None or bool(ledger.fact("lost"))
    if fresh:
        last = int(ledger.fact("session") or 0)
        ledger.begin_session(client, now, told=not renewed, since_ms=(last >> _CHANCE_BITS) + _EPOCH_MS - _SKEW_MS)
    return client, int(ledger.fact("session") or 0), ledger.saved(), not fresh


def _made_up(options: ConnectOptions) -> str:
    return f"{f'{options.user}.' if options.user else 'client-'}{secrets.token_hex(_ID_BYTES)}"


def _journal(options: ConnectOptions, client: str, session: int, kept: SavedClient | None) -> Journal | None:
    if options.trace is None:
        return None
    from ordercast.api.client_journal import open_journal

    return open_journal(options.trace, client, session, kept)


async def _until_connected(bridge: Bridge, options: ConnectOptions) -> None:
    try:
        async with asyncio.timeout(options.timeout):
            while bridge.broker is None:
                await bridge.change()
                if bridge.failures and not any(absent for _, _, absent in bridge.failures):
                    raise ConnectError(_why(bridge, options))  # They are there, and none wants this client.
    except TimeoutError:
        raise ConnectError(f"{_why(bridge, options)}; gave up after {options.timeout:g} s") from None


async def _given_up(bridge: Bridge, machine: ClientMachine) -> bool:
    """Whether the brokers have given up the session that the client comes back with: a first topic or filter tells."""
    asked = [topic for topic, membership in machine.topics.items() if membership.wants is not None]
    if not asked and not machine.interests.watched:
        return False

    def is_told() -> bool:
        if asked:
            return any(machine.topics[topic].phase == LIVE for topic in asked)
        return bool(machine.interests.confirmed())

    with suppress(TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            while bridge.lost is None and not is_told():
                await bridge.change()
    return bridge.lost is not None


def _why(bridge: Bridge, options: ConnectOptions) -> str:
    if not bridge.failures:
        return f"cannot connect to {', '.join(options.addresses)}: no answer"
    return "; ".join(f"cannot connect to {address}: {why}" for address, why, _ in bridge.failures)
