"""A client as shared work needs it, for its members and its leaders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from ordercast.api.position import Position
from ordercast.pubsub.received import Vector


class WorkClient(Protocol):
    """Port to a client, of a member or of a leader."""

    @property
    def client_id(self) -> str: ...

    @property
    def session(self) -> str: ...

    @property
    def publish_soon(self) -> Callable[..., str]: ...

    @property
    def publish(self) -> Callable[..., Coroutine[Any, Any, str]]: ...

    @property
    def reply(self) -> Callable[..., Coroutine[Any, Any, str]]: ...

    @property
    def subscribe(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...

    @property
    def unsubscribe(self) -> Callable[..., Coroutine[Any, Any, None]]: ...

    @property
    def read(self) -> Callable[..., Any]: ...

    @property
    def position(self) -> Callable[..., Coroutine[Any, Any, Position]]: ...

    @property
    def drain(self) -> Callable[..., Coroutine[Any, Any, None]]: ...

    @property
    def close(self) -> Callable[..., Coroutine[Any, Any, None]]: ...

    def taken_up_to(self, topic: str) -> Vector: ...

    def spawn(self, name: str, above: int) -> Awaitable[Any]:
        """Another client with the same options, under another name, in a session with a number above this one."""
