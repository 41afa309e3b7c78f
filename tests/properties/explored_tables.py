"""The tables of docs/explorer.md that say what was explored, made from the explorations themselves.

    python -m tests.properties.explored_tables [--large] [--write]

Prints the rows; `--large` explores also those that take long (marked *; without it they keep what they say), `--write`
puts them into the page. `tests/unit/explore/test_tables.py` explores small rows again and says when one is old.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ordercast.core.messages import Guarantee
from ordercast.explore import BrokerScope, Exploration, explore_brokers
from ordercast.explore.brokers.scope import (
    Trouble,
    parse_crash,
    parse_members,
    parse_number,
    parse_talk,
    settings_of,
    tree_of,
)
from tests.properties.locamu_scopes import SCOPES

PAGE = Path(__file__).parents[2] / "docs" / "explorer.md"
TREES, BROKERS = "trees", "brokers"
HEADS = {
    TREES: "| | groups | publications | toggles | losses | states | transitions | ends |",
    BROKERS: "| `ordercast explore broker` | states | transitions | ends |",
}


Wanted = Callable[[str], bool]
"""Whether a row that begins like that is to be explored."""


class BrokerRow(msgspec.Struct, frozen=True):
    """A scope of brokers as a command says it."""

    clients: str
    publish: str
    nodes: int = 2
    crash: str = ""
    cut: str = ""
    early: int = 0
    partitions: str = ""
    large: bool = False

    def scope(self) -> BrokerScope:
        crash, returns = parse_crash(self.crash) if self.crash else (None, False)
        return BrokerScope(
            brokers=self.nodes,
            members=parse_members(self.clients),
            parents=tree_of("line", self.nodes, ()),
            talks=tuple(parse_talk(text, Guarantee.CAUSAL) for text in self.publish.split(",")),
            trouble=Trouble(crash, returns, parse_number(self.cut, "cut") if self.cut else None, self.early),
            settings=settings_of({"partitions": self.partitions} if self.partitions else {}),
        )

    def options(self) -> str:
        words = ["--nodes", str(self.nodes), "--clients", self.clients, "--publish", self.publish]
        for name in ("crash", "cut", "early"):
            words += [f"--{name}", str(value)] if (value := getattr(self, name)) else []
        return shlex.join([*words, *(["--set", f"partitions={self.partitions}"] if self.partitions else [])])


BROKER_ROWS = [
    BrokerRow("0:a;1:a", "0>a,1>a"),
    BrokerRow("0:a;1:a", "0>a total,1>a total"),
    BrokerRow("0:a;1:a", "0>a,0>a total,1>a"),
    BrokerRow("0:a;1:a;2:a", "0>a,2>a", nodes=3),
    BrokerRow("0:a;1:a;2:a", "1>a,2>a total", nodes=3),
    BrokerRow("0:a.>;0:a.>", "0>a.x,1>a.x", nodes=1, early=2),
    BrokerRow("0:a.>;0:b", "0>a.x,1>a.x", nodes=1, early=2),
    BrokerRow("0:a;1:a", "1>a", crash="1", partitions="excluded"),
    BrokerRow("0:a;1:a", "1>a", cut="1"),
    BrokerRow("0:a;1:a", "0>a total", cut="1"),
    BrokerRow("0:a;1:a", "0>a,1>a", crash="1", partitions="excluded", large=True),
    BrokerRow("0:a;1:a", "0>a,1>a", crash="0", partitions="excluded", large=True),
    BrokerRow("0:a;1:a", "1>a", crash="1 returns", partitions="excluded", large=True),
    BrokerRow("0:a;1:a", "0>a,1>a", cut="1", large=True),
    BrokerRow("0:a.>;1:a.>", "0>a.x,1>a.x", large=True),
    BrokerRow("0:a.>;0:b", "1>a.x", nodes=1, cut="0", early=1, large=True),
]


def rows(table: str, wanted: Wanted) -> Iterator[tuple[str, str | None]]:
    """Each row's beginning, and its counts; None where that is not wanted."""
    if table == TREES:
        for name, scope in SCOPES.items():
            toggles = " ".join(f"`{toggle.replace(' stays', '!')}`" for toggle in scope.toggles)
            published = ", ".join(f"`{text}`" for text in scope.publish.split(","))
            star = " *" if scope.large else ""
            begin = f"| {name}, edges `{scope.edges}`{star} | `{scope.groups}` | {published} | {toggles} |"
            begin = f"{begin} {scope.losses} |"
            yield begin, _counts(scope.explore()) if wanted(begin) else None
    else:
        for row in BROKER_ROWS:
            begin = f"| `{row.options()}`{' *' if row.large else ''} |"
            yield begin, _counts(explore_brokers(row.scope())) if wanted(begin) else None


def _counts(found: Exploration) -> str:
    assert found.verdict == "holds", found.counterexample
    return f" {found.states:,} | {found.transitions:,} | {found.outcomes} |"


def written(page: str, table: str) -> dict[str, str]:
    """The rows of a table as the page has them: counts by beginning."""
    found = re.search(rf"<!-- explored: {table} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert found is not None, f"docs/explorer.md has no table {table!r}"
    split = [re.fullmatch(r"(.*\|)((?: [\d,]+ \|| \|){3})", line) for line in found[1].splitlines()]
    return {match[1]: match[2] for match in split if match is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also what takes long")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    for table, head in HEADS.items():
        before = written(page, table)
        lines = [head, "|" + " --- |" * (head.count("|") - 1)]
        for begin, counts in rows(table, lambda begin: arguments.large or "* |" not in begin):
            lines.append(begin + (counts or before.get(begin, " | | |")))
            print(lines[-1], flush=True)
        made = f"<!-- explored: {table} -->\n" + "\n".join(lines) + "\n<!-- end -->"
        page = re.sub(rf"<!-- explored: {table} -->\n.*?<!-- end -->", lambda _, made=made: made, page, flags=re.DOTALL)
    if arguments.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
