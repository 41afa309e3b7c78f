"""Links with a memory (PRV-9.2, PRV-9.3): both ends agree on where each begins, so that nothing is told twice.

A link begins with all that its sender ever delivered, while both ends still keep that; or after four items that go to
and fro over safe links, between which both ends collect what they deliver.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, OverlayWires
from ordercast.core.state import State
from ordercast.overlay.sampling import Contact
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.lines import Line, OutLink
from ordercast.protocols.preventive.links import Links
from ordercast.protocols.preventive.packets import Begin, BeginAnew, Probe, Stranded
from ordercast.protocols.preventive.remembering_broadcast import RememberingBroadcast
from ordercast.protocols.preventive.settings import PreventiveOptions

ALPHA, BETA, PI, RHO = range(4)
"""The four items: to the receiver of the new link, back, there again and back again."""
_MOST_PHASES = 256
"""New links to this process that are under way; the oldest is forgotten, and its sender tries again."""


class OpeningLink(State):
    """A link to this process that is about to begin: from where on in the log its two buffers are."""

    def __init__(self, attempt: int, first: int) -> None:
        self.attempt = attempt
        self.first = first
        self.second: int | None = None


class RememberingLinks(Links):
    """The links of a process that counts what comes over each."""

    ordered: ClassVar[tuple[str, ...]] = (*Links.ordered, "phases")
    broadcast: RememberingBroadcast

    def __init__(
        self, wires: OverlayWires, me: Contact, options: PreventiveOptions, broadcast: Broadcast, boot: int = 0
    ) -> None:
        super().__init__(wires, me, options, broadcast, boot)
        self.phases: dict[Origin, OpeningLink] = {}
        """By the process that opens the link to this one."""

    # Beginning a link

    def _attempt(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:
        """PRV-9.2: with all that there ever was. PRV-9.3: or with four items. Who can do neither is stranded."""
        log = self.broadcast.log
        static = self.options.memory == "counting"
        if log.whole and (static or not via or log.empty):
            link.give_up_attempt()
            self._begin_use(pid, link, [*log.since(0)])
        elif static:
            self.fail(pid, "copies are counted here, so links cannot be added")
        elif not self.broadcast.safe or (link.tries and not self.reached()):
            self._strand(pid, link)
        else:
            super()._attempt(pid, link, via)

    def _strand(self, pid: Origin, link: OutLink) -> None:
        """Nobody hears this process, or nobody speaks to it: the peer says who of the two begins anew."""
        link.give_up_attempt()
        if link.try_again() > self.options.max_attempts:
            self.fail(pid, "neither could begin a link")
            return
        self.wires.set_timer(("ack", pid), int(self.options.ack_ms * 1_000_000))
        self.wires.send(link.connection, Stranded(self.broadcast.log.total))

    def _needs_digest(self, link: OutLink) -> bool:  # noqa: ARG002
        return False  # There is no vector to tell.

    def _lock(self, route: tuple[Origin, ...], attempt: int) -> Packet:
        return Probe(route, 0, attempt, ALPHA)

    def _first_item(self, link: OutLink, collected: int) -> Packet:
        return Begin(link.attempt, collected)

    # The four items

    def pass_probe(self, line: Line, probe: Probe) -> bool:
        """PRV-9.3: on over safe links; the end of its way answers it. False if it cannot go on."""
        if not ALPHA <= probe.stage <= RHO:
            raise PeerError(line.pid, f"sent a probe of stage {probe.stage}")
        place = self._place_of(line, probe)
        if place == len(probe.route) - 1:
            return self._arrived(probe)
        passed = self._forward(probe, place)
        if probe.stage == RHO or not passed:
            self.discharge(*probe.link)
        return passed

    def _arrived(self, probe: Probe) -> bool:
        if probe.stage in {ALPHA, PI}:
            return self._collect_here(probe) and self._answer(probe)
        link = self.out.get(probe.link[1])
        if link is None or link.safe or link.attempt != probe.attempt:
            self.wires.count("stale_acks")
            return True
        if probe.stage == BETA:
            link.collect_from(self.broadcast.log.end)
            return self._answer(probe)
        self._begin_use(probe.link[1], link, [*self.broadcast.log.since(link.start)])
        return True

    def _collect_here(self, probe: Probe) -> bool:
        """At the receiving end of the new link: the first buffer, then the second."""
        sender, now = probe.link[0], self.broadcast.log.end
        phase = self.phases.get(sender)
        if probe.stage == ALPHA:
            self.phases.pop(sender, None)
            self.phases[sender] = OpeningLink(probe.attempt, now)
            if len(self.phases) > _MOST_PHASES:
                del self.phases[next(iter(self.phases))]
            return True
        if phase is None or phase.attempt != probe.attempt:
            return False
        phase.second = now
        return True

    def _answer(self, probe: Probe) -> bool:
        route = probe.route[::-1]
        first = self.out.get(route[1])
        if first is None or not first.safe:
            return False
        self.wires.send(first.connection, Probe(route, 0, probe.attempt, probe.stage + 1))
        return True

    # The receiving end

    def begun(self, connection: Connection, line: Line, begin: Begin) -> None:
        """The peer uses its link from now on: remember what is still to come over it."""
        log = self.broadcast.log
        phase = self.phases.pop(line.pid, None)
        if not begin.attempt and log.whole:
            self.broadcast.hear(connection, [*log.since(0)])
        elif begin.attempt and phase and phase.attempt == begin.attempt and phase.second is not None:
            delivered = [*log.since(phase.first)]
            self.broadcast.hear(connection, delivered, phase.second - phase.first, begin.count)
        else:
            self._refuse(connection, line)
            return
        self.incoming(line)

    def _refuse(self, connection: Connection, line: Line) -> None:
        """The two have nothing to begin with."""
        self.wires.count("refused_links")
        self.stranded(connection, line, 0)
        self.wires.close(connection, "the link cannot begin here")
        self.lost(connection)

    def stranded(self, connection: Connection, line: Line, total: int) -> None:
        """PRV-9.3: of two that cannot link, the one that is alone joins again; if both are, the one that has less."""
        ours = self.broadcast.log.total, self.me.pid
        if self.options.memory == "links" and (self.reached(line) or ours > (total, line.pid)):
            self.wires.send(connection, BeginAnew())

    def reached(self, but: Line | None = None) -> bool:
        """Whether links lead from here to others and from others here; `but` one connection."""
        lines = [line for line in self.lines.values() if line is not but]
        out = [link for link in self.out.values() if link.safe and self.lines[link.connection] in lines]
        return bool(out) and any(line.incoming_safe for line in lines)

    # Losing links

    def adopt(self, pid: Origin, connection: Connection) -> None:
        super().adopt(pid, connection)
        self.broadcast.hear(connection, [])

    def parted(self, connection: Connection, line: Line) -> None:
        self.broadcast.hear_no_more(connection)
        super().parted(connection, line)

    def lost(self, connection: Connection) -> None:
        self.broadcast.hear_no_more(connection)
        super().lost(connection)
        if self.open and self.options.memory == "links" and not self.reached():
            for other, line in sorted(self.lines.items()):
                if line.up and line.greeted:
                    self.wires.send(other, Stranded(self.broadcast.log.total))

    def _drop(self, connection: Connection, reason: str) -> None:
        self.broadcast.hear_no_more(connection)
        super()._drop(connection, reason)

    # After each delivery

    def delivered(self) -> None:
        super().delivered()
        least = self.broadcast.log.end - self.options.max_buffer
        for pid in [pid for pid, phase in self.phases.items() if phase.first < least]:
            del self.phases[pid]

    def pinned(self) -> int:
        starts = [phase.first for phase in self.phases.values()]
        return min([super().pinned(), *starts])
