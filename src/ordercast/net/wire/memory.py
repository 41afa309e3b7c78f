"""Memory for long frames, which is taken and given back with every one of them."""

from __future__ import annotations

_LARGEST = 8 << 20


def keep_freed_memory() -> None:
    """Make the allocator keep some megabytes of what is freed, for the next frames.

    The GNU allocator returns freed memory to the system above a limit, and then takes it anew page by page, which costs
    more than all that is done with a frame of 256 KiB. The limit is twice the largest block that was ever freed (up to
    32 MiB), so that most programs raise it in the course of their life: here it is raised at their beginning. Nobody
    writes to the block, so that it takes no memory. Other allocators do not mind.
    """
    bytes(_LARGEST)
