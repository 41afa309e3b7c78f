"""Measures one run of a group as one row of the results."""

from __future__ import annotations

from statistics import fmean

from ordercast.experiments.cluster.group import Group
from ordercast.experiments.cluster.setting import ClusterSetting
from ordercast.experiments.kit.claims import HELD, VIOLATED
from ordercast.experiments.kit.study import Row
from ordercast.sim.run import rare_collections

_NS_PER_MS = 1e6


def measured(setting: ClusterSetting) -> Row:
    """Run the setting and measure everything."""
    group = Group(setting)
    with rare_collections():
        group.live()
    return {**order(group), **deliveries(group), **recovery(group), **traffic(group)}


def order(group: Group) -> Row:
    """Columns about causal order, by an observer who knows it. Gossip promises none, so it is not judged by it."""
    oracle = group.oracle
    broken = oracle.twice or (oracle.out_of_order and group.setting.ordered)
    failed = [name for name, count in (("order", oracle.out_of_order), ("once", oracle.twice)) if count]
    return {
        "judged": VIOLATED if broken else HELD if oracle.made else None,
        "failed_checks": ", ".join(failed) if broken else "",
        "out_of_order": oracle.out_of_order,
        "twice": oracle.twice,
    }


def deliveries(group: Group) -> Row:
    """Latency, loss and throughput, among those who lived through the run."""
    setting = group.setting
    living = [name for name in group.names if name not in group.crashed]
    delays: list[int] = []
    pairs = lost = unheard = 0
    longest_hold = 0
    for update, made in group.oracle.made.items():
        maker = group.updaters[made.maker]
        others = [name for name in living if name != maker]
        got = [made.delivered[name] for name in others if name in made.delivered]
        if not got and maker in group.crashed:
            continue  # Nobody who lives knows of it.
        pairs += len(others)
        lost += len(others) - len(got)
        unheard += sum(update not in group.heard[name] for name in others)
        delays += [time - made.time for time in got]
        for name in others:
            if name in made.delivered and update in group.heard[name]:
                longest_hold = max(longest_hold, made.delivered[name] - group.heard[name][update])
    round_ns = setting.round_ms * _NS_PER_MS
    seconds = setting.rounds * setting.round_ms / 1000
    return {
        "made": len(group.oracle.made),
        "latency_ms": fmean(delays) / _NS_PER_MS if delays else None,
        "latency_rounds": fmean(delays) / round_ns if delays else None,
        "longest_hold_rounds": longest_hold / round_ns if setting.ordered else None,
        "lost_share": lost / pairs if pairs else None,
        "unheard": unheard / pairs if pairs else None,
        "deliveries_per_s": len(delays) / len(living) / seconds if living else None,
    }


def recovery(group: Group) -> Row:
    """Attempts are updates that a member asked for; one succeeded if the member delivered the update after that."""
    made, living = group.oracle.made, set(group.names) - group.crashed.keys()
    attempts = [attempt for attempt in group.attempts if attempt[0] in living]
    won = 0
    for attempt in attempts:
        update = group.update_of(attempt)
        time = made[update].delivered.get(attempt[0]) if update is not None and update in made else None
        won += time is not None and time >= group.attempts[attempt]
    return {
        "attempts": len(attempts),
        "success": won / len(attempts) if attempts else None,
    }


def traffic(group: Group) -> Row:
    """Lengths of gossip messages, and how evenly the work is spread."""
    lengths = group.message_bytes
    sent = [group.bytes_sent[name] for name in group.names if name not in group.crashed]
    answered = group.recovery_bytes
    total = sum(answered.values())
    of_updaters = sum(answered[name] for name in group.updaters)
    digests = group.digest_bytes / len(lengths) if lengths else 0.0
    return {
        "message_bytes": fmean(lengths) - digests if lengths else None,
        "digest_bytes": digests,
        "busiest_share": max(sent) / fmean(sent) if sent and fmean(sent) else None,
        "recovery_by_updaters": of_updaters / total if total else None,
    }
