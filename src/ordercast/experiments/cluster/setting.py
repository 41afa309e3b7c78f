"""One configuration of the cluster studies, as values."""

from __future__ import annotations

from typing import Literal

import msgspec

from ordercast.experiments.kit.study import Row
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.gossip.options import GossipOptions
from ordercast.sim.connections import CastModel

Variant = Literal["gossip", "none", "source", "k", "k+source"]
"""Gossip without order, or the ordered layer with one of its ways to recover."""

CLUSTER = "c"
PAYLOAD_BYTES = 64
LOSS = 0.002
"""Of datagrams, where loss is not what is varied: what the source tolerated at most, as far as it is legible."""


class ClusterSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are the source's settings as far as they are known. Times are rounds."""

    members: int
    updaters: int
    events_per_round: float
    """Of all updaters together: each makes an update in a round with probability events_per_round / updaters."""
    variant: Variant = "k"
    seed: int = 0
    rounds: int = 60
    """For so long updates are made; then nothing is made until everything has had its time."""
    fanout: int = 4
    ttl: int = 5
    history: int = 0
    """0: twice what is made in ttl + 2 rounds, and no fewer than the source's 40."""
    buffer: int = 400
    ask: int = 4
    digest_every: int = 1
    loss: float = LOSS
    crashed: float = 0.0
    """The share of members that crash, at times spread over the run."""
    slow: float = 0.0
    """The share of directed links that take 5 rounds longer."""
    latency: float = 0.3
    """The longest latency, as a share of a round; the shortest is a third of it."""
    round_ms: float = 100.0
    base_ms: float = 0.0
    """The shortest latency in ms, where length matters too; the longest is twice as long. 0: `latency` counts."""
    bytes_per_ms: float = 0.0
    burst: int = 0
    """Updates come in bursts of so many rounds, with silence of ttl + 12 rounds in between. 0: all the time."""
    hand_over: int = 0
    """Entries are leased, and given back after so many rounds."""

    @classmethod
    def of(cls, parameters: Row) -> ClusterSetting:
        return msgspec.convert({k: v for k, v in parameters.items() if k in cls.__struct_fields__}, cls)

    @property
    def ordered(self) -> bool:
        return self.variant != "gossip"

    @property
    def probability(self) -> float:
        return self.events_per_round / self.updaters

    @property
    def last_round(self) -> int:
        """When everything has had its time: its gossip, its wait, its recovery, and the same again for a digest."""
        options = ClusterOptions(rounds=self.ttl)
        return self.rounds + 2 * (self.ttl + self.ttl + 1 + options.recover_rounds) + 4

    def gossip_options(self) -> GossipOptions:
        return msgspec.convert(self._gossip(), GossipOptions)

    def cluster_options(self, names: tuple[str, ...]) -> ClusterOptions:
        own: dict[str, object] = {"coordinators": names[: self.updaters]} if not self.hand_over else self._leased(names)
        options = {
            **self._gossip(), "clusters": (CLUSTER,), "entries": self.updaters, "recovery": self.variant,
            "ask": self.ask, "recovery_buffer": self.buffer, "digest_every": self.digest_every,
            "packet_bytes": 56_000, **own,
        }  # fmt: skip
        return msgspec.convert(options, ClusterOptions)

    def _leased(self, names: tuple[str, ...]) -> dict[str, object]:
        lease_ms = 40 * self.round_ms
        return {"managers": names[-3:], "lease_ms": lease_ms, "claim_ms": 5 * self.round_ms, "catch_up_ms": lease_ms}

    def _gossip(self) -> dict[str, object]:
        made = round(self.events_per_round * (self.ttl + 2) * 2)
        return {
            "round_ms": self.round_ms, "fanout": self.fanout, "rounds": self.ttl, "members": 10,
            "history": self.history or max(40, made), "view": self.members + 1, "forget_rounds": 10_000,
        }  # fmt: skip

    def casts(self) -> CastModel:
        return CastModel(loss=self.loss, bytes_per_ms=self.bytes_per_ms)
