"""Credentials: who may connect as what, by tokens of brokers, nodes and clients, users with rights, certificates.

Brokers and nodes prove themselves with the peer token, clients with the client token or with the token of their user.
The role is part of what is signed and chooses the token, so what a client knows never opens the connection of a broker.
Without any token a process listens on loopback only, where whoever can connect may.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.process import EVERYTHING, Rights
from ordercast.pubsub.filters import check_filter

BROKER, CLIENT = "broker", "client"
NODE = "node"
"""A protocol machine with fixed neighbours. They are all peers of one another."""
CASTING = "casting"
"""A node that dials another one only to cast packets to it."""
ASKING = "asking"
"""A broker that has not begun yet and only wants to know whether there is a tree."""


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients that present this name and token. Their ids are the name, or the name, a dot and anything more."""

    name: str
    token: str
    publish: tuple[str, ...] = EVERYTHING
    subscribe: tuple[str, ...] = EVERYTHING

    @property
    def rights(self) -> Rights:
        return Rights(self.publish, self.subscribe)

    def owns(self, client: str) -> bool:
        return client == self.name or client.startswith(f"{self.name}.")


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files in PEM form."""

    cert: str = ""
    key: str = ""
    ca: str = ""
    """Whose certificates are believed; the system's list if empty."""
    mutual: bool = False
    """Whoever connects must show a certificate that `ca` has signed."""

    def server_context(self) -> ssl.SSLContext:
        if not self.cert:
            raise UsageError("tls.cert: a process that listens with TLS needs a certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_own(context)
        if self.mutual:
            if not self.ca:
                raise UsageError("tls.ca: with tls.mutual it must say whose certificates are believed")
            context.verify_mode = ssl.CERT_REQUIRED
            _load_ca(context, self.ca)
        return context

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        if self.ca:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            _load_ca(context, self.ca)
        if self.cert:
            self._load_own(context)
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        for field, file in (("cert", self.cert), ("key", self.key)):
            if file and not Path(file).is_file():
                raise UsageError(f"tls.{field}: no such file: {file}")
        try:
            context.load_cert_chain(self.cert, self.key or None)
        except ssl.SSLError as error:
            raise UsageError(f"tls.cert: {self.cert} and its key cannot be used: {error.reason}") from None


def _load_ca(context: ssl.SSLContext, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"tls.ca: {file} cannot be used: {error}") from None


class AdminKey(msgspec.Struct, frozen=True):
    """The key to an admin port: the token, and whose certificates are believed where it speaks TLS."""

    token: str = ""
    tls: Tls | None = None


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one process. A client fills in `user` and `client_token` (its own), a broker the rest."""

    cluster: str = ""
    """Name of the cluster. A client may leave it open."""
    peer_token: str = ""
    client_token: str = ""
    users: tuple[User, ...] = ()
    user: str = ""
    """As whom a client connects."""
    tls: Tls | None = None

    def __post_init__(self) -> None:
        secrets = [self.client_token, *(user.token for user in self.users)]
        if self.peer_token and self.peer_token in secrets:
            raise UsageError("peer_token: is a token of clients too; then any client could pass for a broker")
        if self.users and self.client_token:
            raise UsageError("client_token: has no use where there are users; each of them has a token")
        names = [user.name for user in self.users]
        for user in self.users:
            if not user.token or not user.name or names.count(user.name) > 1:
                raise UsageError(f"user {user.name!r}: needs a name of its own and a token")
            for pattern in (*user.publish, *user.subscribe):
                check_filter(pattern)

    def check_listen(self, host: str, kind: str = BROKER) -> None:
        """Only those who ask for proof from everybody may be reached from other machines."""
        if is_loopback(host):
            if not self.peer_token and (self.users or self.client_token):
                raise UsageError("peer_token: needed where clients have tokens; without it anyone connects as a broker")
            return
        if kind == NODE:
            if not self.peer_token:
                raise UsageError(f"token: needed to listen on {host}, which is not a loopback address")
            return
        if not self.peer_token:
            raise UsageError(f"peer_token: needed to listen on {host}, which is not a loopback address")
        if not self.client_token and not self.users:
            raise UsageError(f"client_token: or users, needed to listen on {host}, which is not a loopback address")

    def own_token(self, kind: str) -> bytes:
        """The token with which this process proves itself when it connects as `kind`."""
        return (self.client_token if kind == CLIENT else self.peer_token).encode()

    def token_of(self, kind: str, user: str, peer: str) -> bytes:
        """The token that somebody who connects as `kind` must prove to know."""
        if kind != CLIENT:
            return self.peer_token.encode()
        if not self.users:
            return self.client_token.encode()
        return self._user(user, peer).token.encode()

    def rights_of(self, user: str, client: str) -> Rights:
        """The rights of an authenticated client."""
        if not self.users:
            return Rights()
        found = self._user(user, client)
        # Of two users whose names both fit, `shop` and `shop.admin`, the longer one owns the id.
        owner = max(
            (other for other in self.users if other.owns(client)), key=lambda other: len(other.name), default=None
        )
        if owner is not found:
            why = f"it must be {user!r} or begin with '{user}.'" if owner is None else "it belongs to another user"
            raise PeerError(client, f"is not a client id of user {user!r}: {why}")
        return found.rights

    def _user(self, name: str, peer: str) -> User:
        for user in self.users:
            if user.name == name:
                return user
        # Which users exist is nobody's business who is none of them.
        raise PeerError(peer, "does not know the token")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str, field: str = "address") -> tuple[str, int]:
    """Host and port of `HOST:PORT`, where an IPv6 host stands in brackets."""
    host, _, port = address.rpartition(":")
    proper = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not host or not host.isprintable() or not proper:
        raise UsageError(f"{field}: {address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
