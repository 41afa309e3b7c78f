"""`ProtocolInfo`: everything that is needed to run a protocol, list it and check what it claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.core.wire import Codec


def is_code(name: str) -> bool:
    """Whether a protocol's name stands for code that has to be loaded, and not for one of ours."""
    return ":" in name or name.endswith(".py")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For protocols without settings."""


def _fixed_neighbours(_place: Place, _options: Any) -> Machine:
    raise UsageError("a protocol that chooses its neighbours itself cannot run where neighbours are fixed")


def _no_more(_options: Any) -> list[str]:
    return []


class ProtocolInfo(msgspec.Struct, frozen=True):
    """One entry of `ordercast protocols`."""

    name: str
    summary: str
    source: str
    guarantee: Guarantee
    """What every message is promised, unless the scenario labels it otherwise."""
    overlay: str
    """What it asks of the overlay and of the links."""
    faults: str
    """Under which faults the guarantee holds."""
    metadata: str
    """Header bytes per message as a formula."""
    genuine: bool
    packets: tuple[type[Packet], ...]
    build: Callable[[Place, Any], Machine] = _fixed_neighbours
    """Of a protocol whose neighbours are fixed."""
    build_overlay: Callable[[OverlayWires, OverlayPlace, Any], OverlayMachine] | None = None
    """Of a protocol that chooses its neighbours itself; such an entry has no `build`."""
    options: type[msgspec.Struct] = NoOptions
    uniform: bool = True
    """Whether what a node delivered that died right after is delivered by all. False: only what a living one did."""
    scope: str = "global"
    """Of causal order: `topic` or `global`."""
    readmits: bool = False
    """Whether a node that restarts without its state is taken back as a new one."""
    reach: Callable[[Any], int] | None = None
    """Of protocols for trees: over how many hops its links go, given its options. None: any overlay as it is."""
    notes_membership: bool = False
    """Whether its machines note when a subscription counts and when it ends. False: it counts when it is asked for."""
    addressed: tuple[str, ...] = ()
    """Options that list nodes by name, and whose machines want addresses there; the runtime puts them in."""
    casts: bool = False
    """Whether its nodes cast datagrams: links that lose, double and reorder are then links for these."""
    admits: bool = False
    """Whether nodes may join and leave its tree, as leaves, during a run."""
    claims: Callable[[Any], list[str]] = _no_more
    """Checks that its runs claim beyond what the guarantee obliges them to, given its options."""

    def codec(self) -> Codec:
        return Codec(self.packets)

    def parse_options(self, raw: dict[str, Any]) -> Any:
        """The options as the protocol's own struct; an unknown or wrong one is named."""
        valid = self.options.__struct_fields__
        for name in raw:
            if name not in valid:
                raise unknown_name(f"option of {self.name}", name, valid)
        try:
            return msgspec.convert(raw, self.options)
        except msgspec.ValidationError as error:
            raise UsageError(f"options of {self.name}: {error}") from None
