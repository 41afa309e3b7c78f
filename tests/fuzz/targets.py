"""Every decoder, by name."""

from __future__ import annotations

from tests.fuzz.engine import Target
from tests.fuzz.files import file_targets
from tests.fuzz.payloads import payload_targets
from tests.fuzz.peers import peer_targets

TARGETS: dict[str, Target] = {target.name: target for target in (*peer_targets(), *file_targets(), *payload_targets())}
