"""Base of the parts of a LoCaMu node: each has state of its own and knows the parts that it works with."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.state import State


class NodePart(State):
    """A part of a node. Annotations of the class name its partners, by the names that the node has for them.

    Partners belong to the node: a part does not count them to its own state.
    """

    partners: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        named = [name for name, kind in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        cls.partners = (*cls.partners, *named)
        cls.constant = (*cls.constant, *named)


def acquaint(parts: dict[str, State]) -> None:
    """Give every part its partners among these."""
    for part in parts.values():
        if isinstance(part, NodePart):
            for name in part.partners:
                setattr(part, name, parts[name])  # Through `__dict__`, attributes would be slower ever after.
