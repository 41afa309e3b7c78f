"""Every decoder, by name."""

from __future__ import annotations

from tests.fuzz.engine import Target
from tests.fuzz.files import file_targets
from tests.fuzz.guests import guest_targets
from tests.fuzz.kept import kept_targets
from tests.fuzz.overlays import overlay_targets
from tests.fuzz.payloads import payload_targets
from tests.fuzz.peers import peer_targets
from tests.fuzz.preventive import preventive_targets

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *peer_targets(),
        *guest_targets(),
        *overlay_targets(),
        *preventive_targets(),
        *file_targets(),
        *kept_targets(),
        *payload_targets(),
    )
}
