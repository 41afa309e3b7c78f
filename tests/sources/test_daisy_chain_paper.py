"""Louzada and Dotti, Daisy Chain Cast: each fault of the printed protocol as a schedule, and what mends it.

docs/protocols/daisy-chain.md draws the counterexamples CE-1 to CE-8 and explains the corrections DCC-C1 to DCC-C6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.core.errors import InvariantError
from ordercast.core.registry import ProtocolInfo
from ordercast.explore import explore
from tests.mutants.atomic_mutants import COVER_WITHOUT_LOG, LITE_KEEPS_CROSSED_COVERS, LITE_KEEPS_STALE_COVERS
from tests.support.drawing import draw
from tests.support.multicast import Servers

SAFE = ("strict", "lite", "cover")


class Case(msgspec.Struct, frozen=True):
    """A configuration, the schedule that goes wrong, and what is broken in the protocol that it goes wrong with."""

    size: int
    messages: dict[str, str]
    schedule: str
    options: dict[str, Any]
    protocol: str | ProtocolInfo = "daisy-chain-published"

    def servers(self, protocol: str | ProtocolInfo, **options: Any) -> Servers:
        return Servers(protocol, self.size, self.messages, **options)

    def go_wrong(self, *, checked: bool = False) -> Servers:
        return self.servers(self.protocol, **self.options, check_invariants=checked).run(self.schedule)

    def destinations(self) -> list[list[int]]:
        return [[int(server) - 1 for server in members] for members in self.messages.values()]


CE_1 = Case(
    4,
    {"a": "13", "b": "13", "c": "14", "z": "34"},
    "c:a c:b c:c 1>2x2 2>3x2 3>4 c:z 3>4 1>3 *",
    {"corrections": ["C4"]},
)
CE_2 = Case(
    4,
    {"w": "1234", "x": "13", "y": "124", "z": "34"},
    "c:w c:x c:y 1>2x3 2>3 3>4 2>4 c:z 3>4 2>3 *",
    {"corrections": ["C1", "C4"]},
)
CE_3 = Case(
    5,
    {"a": "14", "b": "125", "c": "1245"},
    "c:a c:b c:c 1>2x3 2>3x2 3>4 2>4 3>4 4>5x2 *",
    {"corrections": ["C1", "C4"]},
)
CE_4 = Case(
    4,
    {"a": "13", "b": "13", "c": "14", "e": "134"},
    "c:a c:b c:c c:e 1>2x3 2>3x3 1>3 *",
    {"corrections": ["C1", "C2"], "buffer": "newest"},
)
CE_5 = Case(
    4,
    {"a": "13", "b": "124", "z": "34"},
    "c:a c:b 1>2 2>4 c:z 3>4 1>3 *",
    {"corrections": ["C1", "C4"], "first": "fast"},
)
CE_6 = Case(
    4,
    {"a": "13", "b": "14", "c": "1234"},
    "c:a c:b c:c 1>2 1>3 2>3 1>3 3>4x2 *",
    {"rule": "cover"},
    COVER_WITHOUT_LOG,
)
CE_7 = Case(
    4,
    {"a": "13", "b": "14", "c": "134"},
    "c:a 1>3 c:b 1>2 c:c 1>3 2>3 3>4x2 *",
    {},
    LITE_KEEPS_CROSSED_COVERS,
)
CE_8 = Case(
    5,
    {"a": "1234", "b": "15", "c": "1245"},
    "c:a c:b c:c 1>2x3 2>3x2 2>4 3>4x2 4>5x2 *",
    {},
    LITE_KEEPS_STALE_COVERS,
)

CYCLES = {"CE-1": CE_1, "CE-2": CE_2, "CE-5": CE_5}
DEADLOCKS = {"CE-3": CE_3, "CE-4": CE_4, "CE-6": CE_6, "CE-7": CE_7, "CE-8": CE_8}
ALL = CYCLES | DEADLOCKS


@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("CE-1", {1: "a b c", 3: "a z b", 4: "c z"}),
        ("CE-2", {1: "w x y", 2: "w y", 3: "w z x", 4: "w y z"}),
        ("CE-5", {1: "a b", 2: "b", 3: "z a", 4: "b z"}),
    ],
)
def test_the_schedule_ends_in_a_cycle(name: str, orders: dict[int, str]) -> None:
    servers = CYCLES[name].go_wrong()
    assert servers.all_orders() == orders
    assert servers.has_cycle()
    assert not servers.is_blocked()


@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("CE-3", {1: "a b c", 2: "b c", 4: "a c"}),
        ("CE-4", {1: "a b c e", 3: "a b e"}),
        ("CE-6", {1: "a b c", 2: "c", 3: "a c"}),
        ("CE-7", {1: "a b c", 3: "a c"}),
        ("CE-8", {1: "a b c", 2: "a c", 3: "a", 4: "a c"}),
    ],
)
def test_the_schedule_ends_in_a_deadlock(name: str, orders: dict[int, str]) -> None:
    servers = DEADLOCKS[name].go_wrong()
    assert servers.all_orders() == orders
    assert servers.is_blocked()


@pytest.mark.parametrize("name", DEADLOCKS)
def test_an_invariant_breaks_before_the_deadlock(name: str) -> None:
    with pytest.raises(InvariantError, match=r"number 1 from 1 to \d, counts 2"):
        DEADLOCKS[name].go_wrong(checked=True)


@pytest.mark.parametrize("corrections", [[], ["C4"], ["C1", "C4"]])
def test_ce_3_needs_c2_whatever_else_is_corrected(corrections: list[str]) -> None:
    """Literally printed, packets travel on past their last destination, so the schedule drains more."""
    servers = CE_3.servers("daisy-chain-published", corrections=corrections, check_invariants=False)
    assert servers.run(CE_3.schedule).is_blocked()


def test_ce_1_happens_to_the_literal_protocol_too() -> None:
    servers = CE_1.servers("daisy-chain-published", check_invariants=False)
    assert servers.run("c:a c:b c:c 1>2x2 2>3x2 3>4x2 c:z 3>4 1>3 *").has_cycle()


@pytest.mark.parametrize("rule", SAFE)
@pytest.mark.parametrize("name", ALL)
def test_corrected_every_interleaving_is_well(name: str, rule: str) -> None:
    """T-DCC-6 to T-DCC-10."""
    case = ALL[name]
    options = {"rule": rule, "check_invariants": True}
    found = explore("daisy-chain", nodes=case.size, destinations=case.destinations(), options=options, ascending=True)
    assert found.decided
    assert found.counterexample is None


@pytest.mark.parametrize("name", ["CE-1", "CE-2", "CE-3", "CE-4", "CE-5"])
def test_as_published_the_explorer_finds_the_fault(name: str) -> None:
    case = ALL[name]
    found = explore(
        "daisy-chain-published",
        nodes=case.size,
        destinations=case.destinations(),
        options=case.options,
        ascending=True,
    )
    assert found.counterexample is not None


MENDED = {
    "CE-1": ("strict", "c:a c:b c:c 1>2x2 2>3x2 c:z 3>4 1>3 3>4", {1: "a b c", 3: "a z b", 4: "z c"}),
    "CE-2": (
        "strict",
        "c:w c:x c:y 1>2x3 2>3 3>4 c:z 3>4 2>3x2 3>4",
        {1: "w x y", 2: "w y", 3: "w z x", 4: "w z y"},
    ),
    "CE-3": ("strict", "c:a c:b c:c 1>2x3 2>3x3 3>4x3 4>5x2", {1: "a b c", 2: "b c", 4: "a c", 5: "b c"}),
    "CE-4": ("strict", CE_4.schedule, {1: "a b c e", 3: "a b e", 4: "c e"}),
    "CE-5": ("strict", "c:a c:b 1>2x2 c:z 2>3x2 3>4x2", {1: "a b", 2: "b", 3: "z a", 4: "z b"}),
    "CE-6": ("cover", CE_6.schedule, {1: "a b c", 2: "c", 3: "a c", 4: "b c"}),
    "CE-7": ("lite", "c:a 1>3 c:b 1>2 c:c 1>2 2>3x2 3>4x2", {1: "a b c", 3: "a c", 4: "b c"}),
    "CE-8": (
        "lite",
        "c:a c:b c:c 1>2x3 2>3x3 3>4x3 4>5x2",
        {1: "a b c", 2: "a c", 3: "a", 4: "a c", 5: "b c"},
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_corrected_the_same_beginning_ends_well(name: str) -> None:
    rule, schedule, orders = MENDED[name]
    servers = ALL[name].servers("daisy-chain", rule=rule).run(schedule)
    assert servers.all_orders() == orders
    assert not servers.is_blocked()
    assert not servers.has_cycle()


@pytest.mark.parametrize("name", ALL)
def test_the_page_draws_what_happens(name: str) -> None:
    case = ALL[name]
    rule, schedule, _ = MENDED[name]
    page = (Path(__file__).parents[2] / "docs" / "protocols" / "daisy-chain.md").read_text(encoding="utf-8")
    wrong = case.servers(case.protocol, **case.options, check_invariants=False)
    for drawing in (draw(wrong, case.schedule), draw(case.servers("daisy-chain", rule=rule), schedule)):
        assert f"```text\n{drawing}\n```" in page, f"the page should draw:\n{drawing}"
