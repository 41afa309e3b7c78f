"""The metrics of a broker tell how long deliveries took, by guarantee, in buckets that add up."""

from __future__ import annotations

import ordercast
from ordercast.core.messages import Guarantee
from ordercast.net.brokers.delivery_times import BOUNDS_S, DeliveryTimes
from tests.support.doors import doors
from tests.support.loop import run_async


def test_times_fall_into_buckets_that_add_up() -> None:
    times = DeliveryTimes()
    for milliseconds in (0, 1, 2, 600, 60_000):
        times.took(Guarantee.TOTAL, milliseconds * 1_000_000)
    lines = list(times.lines())
    assert 'ordercast_delivery_seconds_bucket{guarantee="total",le="0.001"} 2' in lines
    assert f'ordercast_delivery_seconds_bucket{{guarantee="total",le="{BOUNDS_S[-1]}"}} 4' in lines
    assert 'ordercast_delivery_seconds_bucket{guarantee="total",le="+Inf"} 5' in lines
    assert 'ordercast_delivery_seconds_sum{guarantee="total"} 60.603000' in lines
    assert 'ordercast_delivery_seconds_count{guarantee="total"} 5' in lines


def test_a_broker_looks_at_what_it_hands_to_its_clients() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as client:
            inbox = await client.subscribe("t")
            for guarantee in ("causal", "total"):
                await client.publish("t", b"x", guarantee=guarantee)
                await inbox.get(20)
            counts = opened.process.host.deliveries.counts
            assert sum(counts[Guarantee.CAUSAL]) == sum(counts[Guarantee.TOTAL]) == 1
            assert sum(counts[Guarantee.EVENTUAL]) == 0
            lines = list(opened.process.host.deliveries.lines())
            assert 'ordercast_delivered_total{guarantee="total"} 1' in lines
            assert 'ordercast_delivered_total{guarantee="eventual"} 0' in lines

    run_async(main)
