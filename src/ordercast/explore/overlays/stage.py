"""The steps of a small network whose links change: arrivals, publications, joins, steps of a script, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ordercast.explore.brokers.processes import Publishes, Rings
from ordercast.explore.brokers.world import DOWN, BrokerWorld, ClosedEnd, Moment, PossibleStep, put
from ordercast.explore.overlays.scope import OverlayScope
from ordercast.explore.overlays.table import OverlayTable

_SCRIPT = "sampling"
"""Timers of a script run out at any moment, one after the other."""


class OverlayStage(BrokerWorld):
    """The steps of every moment of one configuration."""

    def __init__(self, table: OverlayTable) -> None:
        super().__init__(table)
        self.places: OverlayScope = table.scope  # type: ignore[assignment]

    def begin(self) -> Moment:
        """All who are there from the beginning are up, and their links are in use."""
        moment = Moment(0, (DOWN,) * self.places.nodes, (), (0,) * self.places.nodes)
        for rank in range(self.places.nodes):
            if rank not in self.places.joins:
                moment = self._started(moment, rank, 0)
        return self.settled(moment)

    def _publications(self, moment: Moment) -> Iterator[PossibleStep]:
        for rank, script in enumerate(self._by_client):
            said = moment.said[rank]
            if said < len(script) and moment.processes[rank] != DOWN:
                after = moment._replace(said=put(moment.said, rank, said + 1))
                yield self._step(f"n{rank} publishes m{script[said] + 1}", after, rank, Publishes(script[said]))
        yield from self._joins(moment)
        yield from self._script(moment)

    def _joins(self, moment: Moment) -> Iterator[PossibleStep]:
        for rank in self.places.joins:
            if moment.processes[rank] == DOWN and not moment.joined >> rank & 1:
                after = self._started(moment._replace(joined=moment.joined | 1 << rank), rank, 0)
                yield PossibleStep(f"n{rank} joins", after, False, None)

    def _script(self, moment: Moment) -> Iterator[PossibleStep]:
        for rank, process in enumerate(moment.processes):
            if process != DOWN:
                for name, _, background in sorted(self.table.known[process].timers, key=repr):
                    if _is_script(name) and not background:
                        yield self._step(f"n{rank} follows its script", moment, rank, Rings(name))

    def _timers(self, process: int) -> Any:
        """All but those of the script."""
        return [timer for timer in super()._timers(process) if not _is_script(timer[0]) or timer[2]]

    def _troubles(self, moment: Moment) -> Iterator[PossibleStep]:
        trouble = self.places.trouble
        if trouble.crash is not None and moment.crashed == 0 and moment.processes[trouble.crash] != DOWN:
            yield PossibleStep(f"n{trouble.crash} crashes", self._crashed(moment, trouble.crash), False, None, True)
        if moment.cuts < trouble.cuts:
            yield from self._cuts(moment)
        if moment.losses < trouble.losses:
            yield from self._losses(moment)

    def _cuts(self, moment: Moment) -> Iterator[PossibleStep]:
        for place, line in enumerate(moment.lines):
            if line.number > 0 and line.target_number > 0:
                end = (ClosedEnd(True, "connection reset"),)
                broken = line._replace(forth=end, back=end)
                after = self._with_line(moment._replace(cuts=moment.cuts + 1), place, broken)
                label = f"the connection of {self._name(line.dialer)} to {self._name(line.target)} breaks"
                yield PossibleStep(label, after, False, None, True)

    def _losses(self, moment: Moment) -> Iterator[PossibleStep]:
        for place, line in enumerate(moment.lines):
            for forth in (True, False):
                queue = line.forth if forth else line.back
                if queue and isinstance(queue[0], bytes) and self._told(queue[0]).endswith("Ack"):
                    left = line._replace(forth=queue[1:]) if forth else line._replace(back=queue[1:])
                    after = self._with_line(moment._replace(losses=moment.losses + 1), place, left)
                    source, target = (line.dialer, line.target) if forth else (line.target, line.dialer)
                    yield PossibleStep(
                        f"{self._name(source)} -> {self._name(target)}: Ack is lost", after, False, None, True
                    )

    def _crashed(self, moment: Moment, rank: int) -> Moment:
        history = self.table.known[moment.processes[rank]].history
        return super()._crashed(moment._replace(last=((rank, history),)), rank)

    def at_rest(self, moment: Moment) -> bool:
        waits = next(self._arrivals(moment), None) or self._time(moment) or next(self._publications(moment), None)
        return waits is None


def _is_script(name: object) -> bool:
    return isinstance(name, tuple) and name[0] == _SCRIPT and isinstance(name[1], int)
