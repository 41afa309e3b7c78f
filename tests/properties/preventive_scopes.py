"""Small networks of the preventive broadcast, every interleaving of them.

    python -m tests.properties.preventive_scopes [NAME...]

The table of docs/explorer.md is from here.
"""

from __future__ import annotations

import sys

from ordercast.explore import OverlayScope, explore_overlay
from ordercast.explore.overlays.scope import OverlayTrouble
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import PREVENTIVE

LINE = ((0, 1), (1, 2))
OPENS = ("n0 opens n2 at 0 via n1",)
OPENS_CLOSES = (*OPENS, "n0 closes n2 at 1")
COUNTING = {"memory": "counting", "skip_sender": False, "fallback": "hint"}
LINKS = {"memory": "links", "skip_sender": False, "fallback": "hint", "script": OPENS}
SCOPES = {
    "static": OverlayScope(info=PREVENTIVE, nodes=4, edges=((0, 1), (1, 2), (2, 3), (0, 3)), messages=3,
                           options=PreventiveOptions()),
    "open": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=3, options=PreventiveOptions(script=OPENS)),
    "lost-ack": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=2,
                             options=PreventiveOptions(script=OPENS_CLOSES), trouble=OverlayTrouble(losses=1, early=1)),
    "reopen": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, publishers=(0, 0),
                           options=PreventiveOptions(script=(*OPENS_CLOSES, "n0 opens n2 at 2 via n1"))),
    "tight": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, publishers=(0, 0, 0),
                          options=PreventiveOptions(script=OPENS, max_buffer=0, fallback="flood")),
    "hint": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=2,
                         options=PreventiveOptions(script=("n0 opens n2 at 0",), fallback="hint")),
    "crash": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=2, options=PreventiveOptions(script=OPENS),
                          trouble=OverlayTrouble(crash=1)),
    "cut": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, publishers=(0, 0),
                        options=PreventiveOptions(script=OPENS), trouble=OverlayTrouble(cuts=1)),
    "join": OverlayScope(info=PREVENTIVE, nodes=3, edges=((0, 1), (0, 2)), joins=(2,), messages=2,
                         options=PreventiveOptions(script=("n1 opens n2 at 0 via n0",))),
    "two-contacts": OverlayScope(info=PREVENTIVE, nodes=3, edges=((0, 1), (0, 2), (1, 2)), joins=(2,), messages=2,
                                 options=PreventiveOptions(script=OPENS)),
    "mediator": OverlayScope(info=PREVENTIVE, nodes=4, edges=((0, 1), (1, 2), (0, 3)), publishers=(0, 0),
                             options=PreventiveOptions(script=("n3 opens n2 at 0 via n0", "n0 opens n2 at 1 via n3"))),
    "counting": OverlayScope(info=PREVENTIVE, nodes=3, edges=((0, 1), (1, 2), (0, 2)), messages=2,
                             options=PREVENTIVE.parse_options(COUNTING)),
    "counting-four": OverlayScope(info=PREVENTIVE, nodes=4, edges=((0, 1), (1, 2), (2, 3), (0, 3)), messages=2,
                                  options=PREVENTIVE.parse_options(COUNTING)),
    "links": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=1, options=PREVENTIVE.parse_options(LINKS)),
    "links-two": OverlayScope(info=PREVENTIVE, nodes=3, edges=LINE, messages=2,
                              options=PREVENTIVE.parse_options(LINKS)),
    "links-join": OverlayScope(info=PREVENTIVE, nodes=3, edges=((0, 1), (0, 2)), joins=(2,), messages=1,
                               options=PREVENTIVE.parse_options({**LINKS, "script": ("n1 opens n2 at 0 via n0",)})),
}  # fmt: skip
"""What each is about: see docs/explorer.md."""
SMALL = ("open", "hint", "join", "two-contacts", "tight", "counting", "links", "links-join")
"""Those of a few seconds."""


def main() -> int:
    failed = 0
    for name in sys.argv[1:] or SCOPES:
        found = explore_overlay(SCOPES[name], limit_states=5_000_000)
        transitions = sum(size.transitions for size in found.sizes)
        print(
            f"{name:14} {found.verdict:10} {found.states:>9,} {transitions:>10,} {found.cpu_seconds:6.1f} s", flush=True
        )
        failed += found.verdict == "violated"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
