"""Shared work for programs without asyncio: an inbox whose messages one member of the group is handed each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from ordercast.api.inbox import InboxEnded
from ordercast.api.work import Work, WorkInbox

T = TypeVar("T")


class LoopThread(Protocol):
    """Port to the thread that the client lives in."""

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait here."""

    def soon(self, act: Callable[..., object], *arguments: object) -> None:
        """Do it there, do not wait."""


class BlockingWork(Work, frozen=True, array_like=True, gc=True):
    """A message that this member is to deal with: `done()` when it has, `retry()` when it could not."""

    thread: LoopThread | None = None

    def done(self) -> None:  # type: ignore[override]
        """It is dealt with, and written down when this returns: it is never handed to anybody again.

        A WorkLost says that this member was given up before it knew that (see `ordercast.WorkLost`).
        """
        assert self.thread is not None
        self.thread.call(_awaited(super()))

    def done_soon(self) -> None:
        """It is dealt with; the next one of its key may be handed out. Does not wait until that is written down."""
        assert self.thread is not None
        self.thread.soon(super().done)

    def retry(self, after: float = 0.0, reason: str = "") -> None:
        """It could not be done now: be handed it again in so many seconds. Others of its key wait until then.

        After `max_attempts` it goes to the dead-letter topic with the reason.
        """
        assert self.thread is not None
        self.thread.soon(super().retry, after, reason)

    def reply(self, payload: bytes, **options: Any) -> str:
        """Answer a request, of which one member of the group is handed each; options as of `publish`."""
        assert self.thread is not None
        answer: str = self.thread.call(super().reply(payload, **options))
        return answer


async def _awaited(work: Any) -> None:
    await work.done()


class BlockingWorkInbox:
    """The work of one member of a group: `for message in inbox`, then `message.done()`."""

    def __init__(self, thread: LoopThread, inbox: WorkInbox) -> None:
        self._thread = thread
        self.inner = inbox

    @property
    def pattern(self) -> str:
        return self.inner.pattern

    @property
    def group(self) -> str:
        return self.inner.group

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose work it shares."""
        return self.inner.topics

    @property
    def joined(self) -> bool:
        """A leader has this member in its books."""
        return self.inner.joined

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingWork:
        try:
            return self.get()
        except InboxEnded:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> BlockingWork:
        """The next piece of work; a TimeoutError if none comes within so many seconds."""
        work = self._thread.call(self.inner.get(timeout))
        return BlockingWork(
            work.origin, work.number, work.topic, work.payload, work.guarantee, work.keys, work.published_ns,
            work.extras, work.held, work.inbox, self._thread,
        )  # fmt: skip
