"""Hands one input to one machine, and checks what no machine may ever do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from ordercast.core.errors import InvariantError, PeerError, UsageError, saying
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.explore.machines.setting import Effects, Setting
from ordercast.explore.promises.properties import History, Violation, name
from ordercast.explore.scope.faults import DetectorChange


class Cause(NamedTuple):
    """Why a node moves: an input from `peer`, or a timer."""

    node: int
    peer: int
    what: Packet | Message | DetectorChange | None
    timer: Hashable = None
    lost: bool = False
    """The packet never arrives."""


SETTLE = Cause(-1, -1, None)
"""Not one node moves but all: nothing goes wrong any more, and everything that still can happen does."""


def act(machine: Machine, cause: Cause, setting: Setting, index: Mapping[Message, int]) -> Effects | Violation:
    """Let the machine handle its input. An error that it raises is a violation: it must never raise one here.

    What is no error, such as a call of sys.exit, goes on up: it says nothing about a promise.
    """
    effects = Effects()
    try:
        if cause.what is None:
            machine.on_timer(cause.timer, effects)
        elif isinstance(cause.what, DetectorChange):
            for peer in cause.what.peers:
                (machine.on_suspect if cause.what.on else machine.on_trust)(setting.everyone[peer], effects)
        elif isinstance(cause.what, Message):
            machine.on_publish(cause.what, effects)
        else:
            machine.on_receive(setting.everyone[cause.peer], cause.what, effects)
    except UsageError:
        raise
    except (InvariantError, PeerError) as error:
        return _failure(cause, saying(error), setting, index)
    except Exception as error:  # noqa: BLE001 - a machine that fails is what the explorer looks for
        return _failure(cause, f"{type(error).__name__}: {saying(error)}", setting, index)
    return _misconduct(cause, effects, setting, index) or effects


def misconduct_at_start(setting: Setting) -> Violation | None:
    """What a machine does when it starts and no machine may ever do: when nobody has published anything yet."""
    for rank, node in enumerate(setting.servers):
        effects = Effects()
        setting.machine(node).on_start(effects)
        if fault := _misconduct(Cause(rank, rank, None), effects, setting, {}):
            return fault
    return None


def told(cause: Cause, effects: Effects, index: Mapping[Message, int]) -> History:
    """The input's addition to the node's history."""
    published = (~index[cause.what],) if isinstance(cause.what, Message) else ()
    return published + tuple(index[message] for message in effects.delivered)


def carried(what: Packet | Message | DetectorChange | None) -> Message | None:
    """The message that an input brings along, if it brings a whole one."""
    if isinstance(what, Packet) and what.carries is not None:
        message: Message = getattr(what, what.carries)
        return message
    return None


def _failure(cause: Cause, text: str, setting: Setting, index: Mapping[Message, int]) -> Violation:
    """The machine's complaint, with the names that the schedule uses."""
    for message, i in index.items():
        text = text.replace(message.id, name(i))
    me = setting.everyone[cause.node]
    return Violation("invariant", text if text.startswith(me) else f"{me}: {text}")


def _misconduct(cause: Cause, effects: Effects, setting: Setting, index: Mapping[Message, int]) -> Violation | None:
    me = setting.everyone[cause.node]
    sent: list[tuple[NodeId, Any]] = effects.sent  # Whatever code hands in, not what it should.
    delivered: list[Any] = effects.delivered
    for peer, packet in sent:
        if peer not in setting.neighbours[me]:
            return Violation("invariant", f"{me} sends to {peer}, which is not its neighbour")
        if not isinstance(packet, Packet):
            return Violation("invariant", f"{me} sends a {type(packet).__name__}, which is no packet")
    for message in delivered:
        if not isinstance(message, Message):
            return Violation("integrity", f"{me} delivers a {type(message).__name__}, which is no message")
        if message not in index:
            return Violation("integrity", f"{me} delivers {message.id}, which nobody published in this form")
    brought = carried(cause.what)
    if setting.genuine and brought is not None and me not in brought.dst:
        return Violation("genuine", f"{me} takes part in {name(index[brought])}, which is not addressed to it")
    return None
