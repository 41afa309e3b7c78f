"""Tables of a cluster file about doors, for clients that do not speak the brokers' own protocol."""

from __future__ import annotations

from typing import Literal

import msgspec

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import split_address
from ordercast.pubsub.filters import check_filter, matches


class DefaultTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Defaults for publications on some topics that come through a door and say nothing themselves."""

    filter: str
    guarantee: Literal["eventual", "fifo", "causal", "total"] = "causal"
    keys: tuple[str, ...] = ()


_PLAIN = DefaultTable(filter=">")


class NatsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The door for clients of NATS."""

    listen: str = ""
    """HOST:PORT; where a file has several brokers, of the first of them."""
    annotate: Literal["chosen", "all"] = "chosen"
    """Which messages carry headers with their id and guarantee: those that have chosen something, or all."""
    default: tuple[DefaultTable, ...] = ()
    """The first whose filter takes a topic in counts."""


class WebTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The door for browsers and HTTP."""

    listen: str = ""
    """HOST:PORT; where a file has several brokers, of the first of them."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may connect, such as `https://shop.example`; those of the door itself always may."""
    default: tuple[DefaultTable, ...] = ()
    """The first whose filter takes a topic in counts."""


def check_door(name: str, table: NatsTable | WebTable) -> None:
    """Raise a UsageError that names what is wrong in the table."""
    if table.listen:
        split_address(table.listen, f"{name}.listen")
    for i, default in enumerate(table.default):
        try:
            check_filter(default.filter)
        except UsageError as error:
            raise UsageError(f"{name}.default[{i}]: {error}") from None


def default_of(tables: tuple[DefaultTable, ...], topic: str) -> DefaultTable:
    """The defaults that hold for a topic."""
    return next((table for table in tables if matches(table.filter, topic)), _PLAIN)
