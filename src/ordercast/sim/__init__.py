"""Runtime A: virtual time, one thread, one seed. The same machines that run over TCP run here."""

from ordercast.sim.run import Outcome, simulate

__all__ = ["Outcome", "simulate"]
