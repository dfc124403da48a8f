"""`ptdock serve`: this store's site and questions over HTTP."""

from __future__ import annotations

import ipaddress
import socket

import click

from console.app import App, pass_app
from console.verbs import Verb
from registry.errors import Conflict, Unavailable
from registry.service import Registry


@click.command(cls=Verb)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8470, show_default=True, help="0: any free one.")
@click.option("--blobs-url", "blobs", metavar="URL", help="Where a CDN or bucket serves blobs; they are redirected.")
@pass_app
def serve(app: App, host: str, port: int, blobs: str | None) -> None:
    """Serve what channels offer, and answer questions about it.

    Without a token it only reads. It listens on this machine alone unless --host says otherwise, which development
    keys refuse: put a server that speaks TLS in front.
    """
    try:
        from server.running import run
    except ModuleNotFoundError as error:
        raise Unavailable(f"serving needs {error.name}", hint="pip install 'ptdock[server]'") from None
    from server.settings import Settings

    registry = app.registry()
    check_host(registry, host)
    listening = listen(host, port)
    address = url(host, listening.getsockname()[1])
    app.answer({"url": address}, f"serving {address}")
    run(registry, Settings(blobs=blobs.rstrip("/") if blobs else None), listening)


def check_host(registry: Registry, host: str) -> None:
    """Raise Conflict for an address that others reach while development keys sign."""
    if not is_loopback(host) and registry.signed_site().store.keys.development:
        raise Conflict(
            f"development keys sign this registry, and {host} can be reached by others",
            hint="make real keys first: `ptdock keys init`; or leave --host out",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Unavailable for an address that is taken or not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port or --host"
        ) from error


def url(host: str, port: int) -> str:
    """The address as a client writes it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
