"""Whether a client can still be used."""

from __future__ import annotations

from ordercast.api.bridge import Bridge
from ordercast.api.errors import ConnectError
from ordercast.client.machine import ClientMachine
from ordercast.net.host import ProcessHost


class Lifetime:
    """Asked before everything that a client does, and again after everything that it waited for."""

    def __init__(self, host: ProcessHost, machine: ClientMachine, bridge: Bridge) -> None:
        self._host = host
        self._machine = machine
        self._bridge = bridge
        self._closed = False

    @property
    def closed(self) -> bool:
        """The application has closed or abandoned the client."""
        return self._closed

    @property
    def ended(self) -> bool:
        """It is closed, or its session was given up: only a new connection goes on."""
        return self._closed or self._machine.ended

    @property
    def works(self) -> bool:
        """Its machine may be told of things."""
        return not self.ended and self._host.failure is None

    def close(self) -> None:
        self._closed = True

    def check(self) -> None:
        """Raises a ConnectError that says why nothing can be asked of the client any more."""
        if self._bridge.lost is not None:
            raise self._bridge.lost
        if self._closed:
            raise ConnectError(f"client {self._machine.name} is closed")
        if self._host.failure is not None:
            raise ConnectError(f"client {self._machine.name} has failed: {self._host.failure}")
