"""Runtime A: virtual time, one thread, one seed. The same machines that run over TCP run here."""

from ordercast.sim.run import Outcome, Progress, simulate

__all__ = ["Outcome", "Progress", "simulate"]
