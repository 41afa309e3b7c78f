"""Entries that change hands: every few rounds each of them is given back, and another member wants it."""

from __future__ import annotations

from ordercast.core.chance import mix, salt, unit
from ordercast.experiments.cluster.group import Group
from ordercast.experiments.cluster.measures import deliveries, order, recovery, traffic
from ordercast.experiments.cluster.setting import CLUSTER, ClusterSetting
from ordercast.experiments.kit.study import Row
from ordercast.protocols.cluster.events import epoch_of
from ordercast.sim.run import rare_collections


class ChangingGroup(Group):
    """As many seats as entries; whoever has a seat makes updates as soon as it owns an entry."""

    def plan_updates(self, number: int) -> None:
        setting = self.setting
        if number % setting.hand_over == 0:
            self._change(number // setting.hand_over)
        for seat, name in enumerate(self._holders(number // setting.hand_over)):
            bits = mix(salt(setting.seed, "seat", seat), number)
            machine = self.machine(name)
            if unit(bits) < setting.probability and machine.clusters[CLUSTER].coordinating.may_update:
                self.update(name)

    def _holders(self, turn: int) -> list[str]:
        """Processes that have the seats: everybody but the managers in their turn."""
        seats, candidates = self.setting.updaters, self.names[:-3]
        return [candidates[(turn * seats + seat) % len(candidates)] for seat in range(seats)]

    def _change(self, turn: int) -> None:
        for name in self._holders(turn - 1) if turn else []:
            self.world.act(name, self.machine(name).release, CLUSTER)
        for name in self._holders(turn):
            self.world.act(name, self.machine(name).coordinate, CLUSTER)


def measured_hand_overs(setting: ClusterSetting) -> Row:
    """A run in which entries change hands, measured like all others."""
    group = ChangingGroup(setting)
    with rare_collections():
        group.live()
    owners = {(entry, epoch_of(value)) for entry, value in group.stamps}
    found = {**order(group), **deliveries(group), **recovery(group), **traffic(group)}
    return {**found, "epochs": len(owners), "two_makers": group.two_makers}
