"""One window over many topics (SHW-9): a member of a group on a filter is not sent a window of each.

Every topic has room for one unit at least, or its work could not begin. What is left of the window goes to the topics
whose room is full, and comes back from those that have nothing. Room counts as taken up as long as a leader may use it:
until it is known to have heard that it is less.
"""

from __future__ import annotations

from ordercast.client.work.member import WorkMember
from ordercast.core.state import State


class SharedWindow(State):
    """Says how much each leader may send ahead, so that all of them together send no more than the window."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.members: dict[str, WorkMember] = {}

    def add(self, topic: str, member: WorkMember) -> None:
        """The member takes part in the group of one more topic."""
        member.room = 1
        self.members[topic] = member

    def remove(self, topic: str) -> None:
        self.members.pop(topic, None)

    @property
    def free(self) -> int:
        return self.window - sum(member.taken_up for member in self.members.values())

    def grow(self, member: WorkMember) -> bool:
        """A topic whose room is full gets as much again, if so much is free; whether it got any."""
        if len(member.held) < member.room:
            return False
        more = min(member.room, self.free)
        if more > 0:
            member.room += more
        return more > 0

    def settle(self) -> list[str]:
        """Now and then: take room from who does not use it, and from who has more than its share if others want it.

        Gives the topics whose leaders are to be told.
        """
        before = {topic: member.room for topic, member in self.members.items()}
        busy = [member for member in self.members.values() if member.held]
        share = max(1, self.window // max(1, len(busy)))
        for member in self.members.values():
            if not member.held:
                member.room = 1
        wanting = [member for member in busy if len(member.held) >= member.room and member.room < share]
        if wanting and self.free < len(wanting):
            for member in busy:
                member.room = min(member.room, share)
        for member in wanting:
            self.grow(member)
        return [topic for topic, room in before.items() if self.members[topic].room != room]
