"""Runtime B: real processes and TCP, under the same machines as virtual time. The only package that awaits."""

from ordercast.net.host import Host, NetPlace
from ordercast.net.settings import NetSettings

__all__ = ["Host", "NetPlace", "NetSettings"]
