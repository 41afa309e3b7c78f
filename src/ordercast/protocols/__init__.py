"""(2) In what order: one protocol, one file, one pure machine. This is their catalogue."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ordercast.core.errors import UsageError, saying, unknown_name
from ordercast.core.registry import ProtocolInfo, is_code
from ordercast.protocols.cluster import CLUSTER
from ordercast.protocols.daisy_chain.variants import DAISY_CHAIN, DAISY_CHAIN_PUBLISHED
from ordercast.protocols.flood.fifo import FIFO
from ordercast.protocols.flood.flood import FLOOD
from ordercast.protocols.flood.sequencer import SEQUENCER
from ordercast.protocols.flood.unordered import UNORDERED
from ordercast.protocols.flood.vector import VECTOR
from ordercast.protocols.gossip import GOSSIP
from ordercast.protocols.locamu.variants import LOCAMU, LOCAMU_PUBLISHED
from ordercast.protocols.multicast.delporte_fauconnier import DELPORTE_FAUCONNIER
from ordercast.protocols.multicast.real_time import with_real_time
from ordercast.protocols.multicast.skeen import SKEEN
from ordercast.protocols.preventive.draft import PREVENTIVE_DRAFT
from ordercast.protocols.preventive.flood_overlay import FLOOD_OVERLAY
from ordercast.protocols.preventive.variants import PREVENTIVE
from ordercast.protocols.preventive.vector_overlay import VECTOR_OVERLAY
from ordercast.protocols.replicated.variants import (
    REPLICATED_DAISY_CHAIN,
    REPLICATED_DAISY_CHAIN_REAL_TIME,
    REPLICATED_DELPORTE_FAUCONNIER,
    REPLICATED_SKEEN,
)
from ordercast.protocols.tree.causal_barriers import CAUSAL_BARRIERS
from ordercast.protocols.tree.cbcast import CBCAST
from ordercast.protocols.tree.delta_neighbourhood import DELTA_NEIGHBOURHOOD

CATALOGUE: dict[str, ProtocolInfo] = {
    info.name: info
    for info in (
        CAUSAL_BARRIERS,
        CBCAST,
        DAISY_CHAIN,
        DAISY_CHAIN_PUBLISHED,
        with_real_time(DAISY_CHAIN),
        DELPORTE_FAUCONNIER,
        DELTA_NEIGHBOURHOOD,
        FIFO,
        FLOOD,
        LOCAMU,
        LOCAMU_PUBLISHED,
        REPLICATED_DAISY_CHAIN,
        REPLICATED_DAISY_CHAIN_REAL_TIME,
        REPLICATED_DELPORTE_FAUCONNIER,
        REPLICATED_SKEEN,
        SEQUENCER,
        SKEEN,
        with_real_time(SKEEN),
        UNORDERED,
        VECTOR,
    )
}
"""Every protocol with fixed neighbours that comes with Ordercast, sorted by name."""

OVERLAYS: dict[str, ProtocolInfo] = {
    info.name: info for info in (CLUSTER, FLOOD_OVERLAY, GOSSIP, PREVENTIVE, PREVENTIVE_DRAFT, VECTOR_OVERLAY)
}
"""Every protocol that chooses its neighbours itself, sorted by name."""

_ALL = CATALOGUE | OVERLAYS


def lookup(name: str) -> ProtocolInfo:
    """The protocol called `name`, or one of your own: `path/to/file.py`, `file.py:NAME` or `package.module:NAME`."""
    info = _ALL.get(name)
    if info is not None:
        return info
    if not is_code(name):
        raise unknown_name("protocol", name, _ALL)
    where, _, attribute = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    module = _load_file(Path(where), name) if where.endswith(".py") else _load_module(where, name)
    found = getattr(module, attribute, None) if attribute else _only_one(module, name)
    if not isinstance(found, ProtocolInfo):
        what = f"there is no {attribute!r} in it" if found is None else f"{attribute!r} is not a ProtocolInfo"
        raise UsageError(f"protocol {name!r}: {what}")
    return found


def _only_one(module: ModuleType, name: str) -> ProtocolInfo:
    """The protocol of a file that has one."""
    found = {key: value for key, value in vars(module).items() if isinstance(value, ProtocolInfo)}
    if len(found) != 1:
        which = f"say which: {', '.join(f'{name}:{key}' for key in found)}" if found else "it has no ProtocolInfo"
        raise UsageError(f"protocol {name!r}: {which}")
    return found.popitem()[1]


def _load_module(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _cannot_load(name, error) from error


def _load_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own, once: its classes keep their identity over several lookups."""
    resolved = path.resolve()
    if not resolved.is_file():
        raise UsageError(f"protocol {name!r}: no file {path}")
    alias = f"ordercast_protocol_file:{resolved}"
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, resolved)
    if spec is None or spec.loader is None:
        raise UsageError(f"protocol {name!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module  # Before it runs: msgspec looks up the annotations of its structs there.
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[alias]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _cannot_load(name, error) from error
    return module


def _cannot_load(name: str, error: BaseException) -> UsageError:
    """Whatever the code raises while it is loaded; it may even want to end the program."""
    said = saying(error)
    return UsageError(f"protocol {name!r}: cannot be loaded: {type(error).__name__}{': ' if said else ''}{said}")
