"""What `import ordercast` offers can be found, and is what it says."""

from __future__ import annotations

import ordercast


def test_every_public_name_is_there_and_listed() -> None:
    for name in ordercast.__all__:
        assert getattr(ordercast, name) is not None
    assert {"Message", "Tls", "UsageError", "testing", "connect", "Position"} <= set(dir(ordercast))
    assert ordercast.__version__[0].isdigit()
