"""The port to the publish/subscribe system, as small as services need it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ordercast.api.errors import SessionLost as ClientLost
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector


class BusSessionLost(ClientLost):
    """The session was fenced or its connection closed for good. What was not answered may or may not have happened."""

    def __init__(self, reason: str, *, fenced: bool = False) -> None:
        super().__init__(reason)
        self.fenced = fenced
        """The broker tree has given it up (FM5): the state beside it must be replaced by that of a member."""


class Bus(Protocol):
    """A client's session: what it publishes on a subscribed topic comes back to it as a delivery too."""

    origin: Origin
    """Of everything that this session publishes."""

    async def subscribe(self, topic: Topic, have: Summary) -> Vector:
        """Become a member; deliveries of the topic follow, without those in `have`.

        Returns up to where nothing will be delivered: what was forgotten before this session became a member, and what
        it has said to have consumed in an earlier life; as a cut, with all sessions that are closed. A store that lacks
        some of it needs a snapshot.
        """

    def closed(self) -> Closed:
        """Sessions that are over, and of which a member has consumed everything."""

    async def heard(self, topic: Topic) -> None:
        """Wait until every member has consumed what this session has published on the topic."""

    def publish(
        self, topic: Topic, payload: bytes, keys: tuple[str, ...], guarantee: Guarantee
    ) -> asyncio.Future[None] | None:
        """Publish now. The future is done when the broker tree has taken responsibility, or says that it never will.

        None: it has taken it already.
        """

    async def drain(self) -> None:
        """Wait while more was published than the broker tree can take."""

    async def deliveries(self) -> Sequence[Publication]:
        """The next ones, in delivery order, at least one; raises SessionLost when there will be none."""

    def consumed(self, publications: Sequence[Publication]) -> None:
        """They are safe in the store of this replica: only now the broker tree may count them as received here."""

    async def close(self) -> None:
        """Leave in good order."""
