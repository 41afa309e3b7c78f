"""The broker and client classes that a run is built from; tests replace them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ordercast.broker.node import Broker
from ordercast.client.machine import ClientMachine


class Parts(msgspec.Struct, frozen=True):
    """The machines of a run; tests put others in their place."""

    broker: Callable[..., Broker] = Broker
    client: Callable[..., ClientMachine] = ClientMachine
