"""docs/security.md says of every limit which counter tells of it and that its name is told: both are in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub.settings import BrokerSettings

ROOT = Path(__file__).parents[3]
SOURCE = {
    path: path.read_text()
    for part in ("broker", "net", "client", "api")
    for path in sorted((ROOT / "src" / "ordercast" / part).rglob("*.py"))
}
NO_LIMITS = {
    "farewell_ms", "heartbeat_ms", "delay_ms", "safe_copies", "order_scope", "partitions", "lease_ms", "absent_member",
    "stability_ms", "slow_member", "fold_ms", "total_degree", "max_hops", "view_order", "request_ms", "retry_ms",
    "startup_grace_ms",
}  # fmt: skip
"""Settings that nobody can exceed: they say how, or how often."""


def rows() -> list[tuple[str, str]]:
    table = (ROOT / "docs" / "security.md").read_text().partition("## Limits")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE)


@pytest.mark.parametrize(("limit", "counters"), rows())
def test_a_limit_has_a_counter_and_is_named_to_whoever_meets_it(limit: str, counters: str) -> None:
    assert limit in {*BrokerSettings.__struct_fields__, *WireSettings.__struct_fields__}
    said = [text for path, text in SOURCE.items() if re.search(rf'"[^"\n]*\b{limit}\b[^"\n]*"', text)]
    assert said, f"no error names {limit}"
    for counter in re.findall(r"`(\w+)`", counters):
        stem, _, rest = counter.partition("_by_") if "_by_" in counter else counter.partition("_")
        spelled = {"closed": f'ConnectionEnd("{rest}"', "paused": f'"{rest}"'}.get(stem, f'"{counter}"')
        assert any(spelled in text for text in SOURCE.values()), f"nothing counts {counter}"


def test_every_limit_that_the_settings_have_is_in_the_table() -> None:
    config = (ROOT / "docs" / "broker-config.md").read_text().partition("## Settings")[2]
    names = {
        name for cell in re.findall(r"^\| (`.*?`) \|", config, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }
    settings = names & {*BrokerSettings.__struct_fields__, *WireSettings.__struct_fields__}
    assert settings - NO_LIMITS == {limit for limit, _ in rows()}
