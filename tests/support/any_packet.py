"""Packets of any kind with any content that their types allow, drawn from a seed: what a mad peer may send."""

from __future__ import annotations

import random
import types
import typing
from typing import Any

import msgspec

from ordercast.core.messages import Guarantee, Packet

_WORDS = ("", "a", "t.x", "b0", "b1", "mallory", "ann", "t.*", "~", "ann~1", "mallory~0", "x" * 300, "a/b#1")
_NUMBERS = (0, 1, 2, 5, -1, 2**40, 2**63)


def any_packet(kinds: tuple[type[Packet], ...], chance: random.Random) -> Packet:
    packet: Packet = _any(chance.choice(kinds), chance)
    return packet


def _any(hint: Any, chance: random.Random) -> Any:
    if hasattr(hint, "__supertype__"):
        return _any(hint.__supertype__, chance)
    arguments = typing.get_args(hint)
    few = range(chance.randrange(3))
    match typing.get_origin(hint):
        case typing.Union | types.UnionType:
            return _any(chance.choice(arguments), chance)
        case typing.Annotated:
            return _any(arguments[0], chance)
        case typing.Literal:
            return chance.choice(arguments)
        case container if container is tuple and arguments[-1] is Ellipsis:
            return tuple(_any(arguments[0], chance) for _ in few)
        case container if container is tuple:
            return tuple(_any(argument, chance) for argument in arguments)
        case container if container is dict:
            return {_any(arguments[0], chance): _any(arguments[1], chance) for _ in few}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = typing.get_type_hints(hint)
        return hint(**{name: _any(fields[name], chance) for name in hint.__struct_fields__})
    plain: dict[Any, tuple[Any, ...]] = {
        str: _WORDS, int: _NUMBERS, bool: (False, True), float: (0.0, 1.5, -1.0), bytes: (b"", b"x"),
        type(None): (None,), Guarantee: tuple(Guarantee),
    }  # fmt: skip
    return chance.choice(plain[hint])
