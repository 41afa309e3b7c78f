"""Errors that an application of replicated objects has to expect."""


class NoEntryError(TimeoutError):
    """No entry became free in time: as many members as there are entries coordinate already, or managers are away."""


class UpdateRefusedError(ValueError):
    """The update will never be made; the message says why."""
