"""Groups whose members or leaders lack one rule of shared work, as the client library has it."""

from __future__ import annotations

import pytest

from ordercast.api import work, work_leader
from ordercast.api.sharing import records
from ordercast.api.sharing.ports import WorkClient
from ordercast.client.work.leader import WorkLeader
from ordercast.client.work.member import WorkMember
from ordercast.client.work.patience import Patience
from ordercast.client.work.words import GroupProgress
from ordercast.core.ids import Topic

Patch = pytest.MonkeyPatch


def begins_anew(patch: Patch) -> None:
    """SHW-1: what was written down is not read."""

    patch.setattr(work_leader, "last_written", lambda _: None)


def asks_nobody(patch: Patch) -> None:
    """SHW-6: work is handed out before the members have told what they hold."""

    class Hasty(WorkLeader):
        def _look(self) -> None:
            for member in self.members.values():
                member.reported = True
            super()._look()

    patch.setattr(work_leader, "WorkLeader", Hasty)


def never_stops(patch: Patch) -> None:
    """SHW-8: a member that stood still hands out what others may have been given."""

    class Stubborn(WorkMember):
        def _extend(self, heard: int) -> None:
            super()._extend(heard)
            self.safe_until_ns = 1 << 62

    patch.setattr(work, "WorkMember", Stubborn)


def stops_at_gaps(patch: Patch) -> None:
    """SHW-13: what was written down before a part that is lost is not looked for."""
    found = records.records_of

    async def behind(client: WorkClient, topic: Topic) -> tuple[list[GroupProgress], bool]:
        words, gap = await found(client, topic)
        return ([], False) if gap else (words, False)

    patch.setattr(work_leader, "records_of", behind)


def waits_for_ever(patch: Patch) -> None:
    """SHW-14: an application that does nothing with its work keeps it."""

    class Endless(Patience):
        def is_over(self, now_ns: int, *, waiting: bool, took_ns: int) -> bool:
            return False

    patch.setattr(work, "Patience", Endless)


MUTANTS = {
    "begins anew": (begins_anew, "leaders", 8),
    "asks nobody": (asks_nobody, "leaders", 2),
    "never stops": (never_stops, "members", 3),
    "stops at gaps": (stops_at_gaps, "gaps", 15),
    "waits for ever": (waits_for_ever, "hangs", 2),
}
"""What is missing, and where it is seen: the family and seed of a run that it breaks."""
