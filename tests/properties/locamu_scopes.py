"""The scopes in which LoCaMu was explored: every order of deliveries, scripted suspicions, lost packets.

Run: python -m tests.properties.locamu_scopes [NAME...] [--protocol P] [--every-packet] [--commands]
Prints a line for each scope, and for a violation how it comes about. Without names, all but the large ones.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import msgspec

from ordercast.explore import Exploration, Faults, explore
from ordercast.explore.scope.faults import parse_toggle
from ordercast.explore.scope.publications import nodes_of, parse_edges, parse_groups, parse_publication

LINE_4 = "0-1,1-2,2-3"
LINE_5 = "0-1,1-2,2-3,3-4"
LINE_6 = "0-1,1-2,2-3,3-4,4-5"
FIGURE_3_3 = "0-1,1-2,1-3"
FORK = "0-1,1-2,2-3,2-4"
SPIDER = "0-1,1-2,2-3,3-4,2-5"


class TreeScope(msgspec.Struct, frozen=True):
    """A tree, groups, who publishes what, and what may go wrong."""

    edges: str
    groups: str
    publish: str
    toggles: tuple[str, ...] = ()
    losses: int = 0
    options: dict[str, Any] = {}
    large: bool = False
    """Whether it takes more than ten seconds."""

    def told(self, protocol: str) -> dict[str, Any]:
        """LoCaMu passes names on at once: in a search, timers come when nothing is on its way any more."""
        return {"push_ms": 0, **self.options} if protocol.startswith("locamu") else self.options

    def explore(self, protocol: str = "locamu", *, every_packet: bool = False, **changes: Any) -> Exploration:
        """`every_packet`: acknowledgements, too, arrive at any time or never."""
        edges = parse_edges(self.edges)
        nodes = nodes_of(edges)
        return explore(
            protocol,
            nodes=nodes,
            edges=edges,
            groups=parse_groups(self.groups, nodes),
            publications=[parse_publication(text, nodes) for text in self.publish.split(",")],
            faults=Faults(
                losses=self.losses,
                toggles=tuple(parse_toggle(text, nodes) for text in self.toggles),
                without=() if every_packet else ("Ack",),
            ),
            fifo=False,
            **{"idle_at_once": True, "options": self.told(protocol), **changes},
        )

    def command(self, protocol: str = "locamu") -> str:
        """The same for people."""
        words = ["ordercast", "explore", protocol, "--edges", self.edges, "--groups", self.groups]
        words += ["--publish", self.publish, "--overtaking", "--losses", str(self.losses)]
        words += [word for toggle in self.toggles for word in ("--toggle", toggle)]
        words += [word for key, value in self.told(protocol).items() for word in ("--set", f"{key}={value}")]
        return shlex.join([*words, "--without", "Ack", "--idle-at-once"])


SCOPES = {
    "line of 4, one message": TreeScope(LINE_4, "a:1,2,3", "0>a", ("0:1", "1:2", "2:3"), losses=2),
    "line of 4, two groups, three messages": TreeScope(LINE_4, "a:1,2,3;b:0,3", "0>a,1>b,3>a", ("0:1",)),
    "line of 4, a causal chain, one loss": TreeScope(
        LINE_4, "a:1,2,3;b:2,3;c:3", "0>a,1>b after m1,2>c after m2", ("0:1", "1:2"), losses=1
    ),
    "figure 3.3, one loss": TreeScope(FIGURE_3_3, "a:1,2,3;b:3", "0>a,2>b after m1", ("2:1", "0:1"), losses=1),
    "line of 4, a chain through non-members": TreeScope(
        LINE_4, "a:1,3;b:2;c:3", "0>a,1>b after m1,2>c after m2", ("0:1", "1:2"), losses=1
    ),
    "line of 5, one message": TreeScope(LINE_5, "a:1,2,3,4", "0>a", ("0:1", "1:2", "2:3"), losses=1),
    "line of 5, crossing messages": TreeScope(LINE_5, "a:2,4;b:0,2", "0>a,4>b", ("1:2", "3:2"), losses=1),
    "tree of 5, a chain, one loss": TreeScope(FORK, "a:1,2,3,4;b:3", "0>a,4>b after m1", ("0:1", "4:2"), losses=1),
    "line of 6, f = 2": TreeScope(LINE_6, "a:5", "0>a", ("0:1,2",), losses=1, options={"f": 2}),
    "line of 4, two groups, two suspicions": TreeScope(
        LINE_4, "a:1,2,3;b:0,3", "0>a,1>b after m1,0>a", ("0:1", "1:2 stays"), large=True
    ),
    "spider, f = 2": TreeScope(
        SPIDER, "a:4,5;b:4", "0>a,5>b after m1", ("0:1,2 stays", "5:2,3 stays"), options={"f": 2}, large=True
    ),
    "gap": TreeScope(
        FORK, "m:1,2,3,4;x:3,4;y:3", "0>m,1>x,4>y after m1 + m2", ("0:1", "1:2 stays", "4:2 stays"), large=True
    ),
}
"""By name; what toggles stand for is explained by `ordercast explore --help`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *SCOPES], default=[])
    parser.add_argument("--protocol", default="locamu")
    parser.add_argument("--every-packet", action="store_true", help="acknowledgements, too, arrive at any time")
    parser.add_argument("--commands", action="store_true", help="print each as a command instead")
    parser.add_argument("--limit-states", type=int, default=6_000_000)
    arguments = parser.parse_args()
    names = arguments.names or [name for name, scope in SCOPES.items() if not scope.large]
    if arguments.commands:
        print(*[SCOPES[name].command(arguments.protocol) for name in arguments.names or SCOPES], sep="\n")
        return 0
    held = True
    for name in names:
        found = SCOPES[name].explore(
            arguments.protocol, every_packet=arguments.every_packet, limit_states=arguments.limit_states
        )
        held = held and found.verdict == "holds"
        print(
            f"{name:42}{found.verdict:>10}{found.states:>10,} states{found.transitions:>11,} transitions"
            f"{found.outcomes:>4} outcomes{found.cpu_seconds:>7.1f} s",
            flush=True,
        )
        if found.counterexample is not None:
            print(f"  {found.counterexample.violation.detail}", *found.counterexample.story, sep="\n    ")
        if found.verdict != "holds":
            print(f"  {SCOPES[name].command(arguments.protocol)}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
