"""Replicated objects in causal clusters: many watch, a few write at a time, and nobody sees effects before causes.

```python
import ordercast.objects as objects

async with await objects.start("ann", managers=managers, contacts=managers, token="secret") as node:
    room = await node.join("room-7")
    door = room.register("door-3")
    await door.set("open")
    print(door.value, room.counter("visits").value)
```

docs/objects.md says what is promised and what is not.
"""

from ordercast.objects.cluster import Cluster, ClusterUpdate, Coordination
from ordercast.objects.errors import NoEntryError, UpdateRefusedError
from ordercast.objects.node import Node, start
from ordercast.objects.shared import Counter, GrowingSet, Merged, Register

__all__ = [
    "Cluster", "ClusterUpdate", "Coordination", "Counter", "GrowingSet", "Merged", "NoEntryError", "Node", "Register",
    "UpdateRefusedError", "start",
]  # fmt: skip
