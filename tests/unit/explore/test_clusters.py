"""Small causal clusters completely, and that the exploration sees what it is there for."""

from __future__ import annotations

import pytest

from ordercast.cli.app import app
from ordercast.explore.clusters.order import OrderScope
from ordercast.explore.clusters.tickets import TicketScope
from ordercast.protocols.cluster.events import Event
from ordercast.protocols.cluster.ordering import UpdateOrdering
from ordercast.protocols.cluster.tickets.lease import Lease


@pytest.mark.parametrize(
    ("processes", "updates", "restarts", "states"),
    [(2, 3, 0, 169), (2, 3, 1, 2_263), (3, 3, 0, 5_926)],
)
def test_the_order_of_small_clusters_holds_in_every_interleaving(
    processes: int, updates: int, restarts: int, states: int
) -> None:
    found = OrderScope(processes, updates, restarts).explore()
    assert (found.violation, found.complete, found.states) == ("", True, states)


class _DeliversAlone(UpdateOrdering):
    def force(self, event: Event) -> list[Event]:
        return [self._deliver(event), *self.flush()]


class _WaitsForNobody(UpdateOrdering):
    def is_ready(self, event: Event) -> bool:
        return event.value > self.clock[event.entry]

    def take(self, event: Event) -> list[Event]:
        self.waiting.pop(event.key, None)
        self.clock[event.entry] = event.value
        return [event]


@pytest.mark.parametrize(("mutant", "promise"), [(_DeliversAlone, "O4"), (_WaitsForNobody, "O1")])
def test_the_exploration_of_the_order_finds_the_mutant_and_tells_its_shortest_story(
    mutant: type[UpdateOrdering], promise: str
) -> None:
    found = OrderScope(3, 3, ordering=mutant).explore()
    assert found.violation.startswith(promise)
    assert 3 <= len(found.story) <= 8


def test_the_ticket_of_one_process_is_given_and_taken_in_every_interleaving() -> None:
    found = TicketScope(1, 1, 2).explore()
    assert (found.violation, found.complete) == ("", True)


class _AnyManager(Lease):
    @property
    def quorum(self) -> int:
        return 1


def test_the_exploration_of_tickets_finds_two_owners_where_one_manager_suffices() -> None:
    found = TicketScope(2, 1, 0, lease=_AnyManager).explore()
    assert found.violation.startswith(("O5", "O6"))
    assert len(found.story) <= 6


def test_the_command_explores_and_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (
        ("--nodes 2 --messages 2", 0),
        ("--nodes 2 --messages 3 --set restarts=1 --limit-states 50", 4),
    ):
        with pytest.raises(SystemExit) as left:
            app(["explore", "cluster", *words.split()])
        assert left.value.code == code
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "holds: 27 states, 32 transitions"
    assert said[1].startswith("undecided: ")
