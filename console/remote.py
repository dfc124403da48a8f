"""Publishes to a server instead of a store on this machine: the adapter's files as one form, streamed.

    document = Server("https://ptdock.example.com", token).publish("pirate", directory, {"foundation": "smollm2"})

What the server refuses is raised as the same error that the command would have raised here.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from registry import canonical, errors
from registry.errors import FormatError, InputError, PtdockError, Unavailable

_CHUNK = 1 << 20
_ANSWER = 16 << 20
_TIMEOUT = 600.0
_CODES: dict[int, type[PtdockError]] = {422: InputError, 404: errors.NotFound, 409: errors.Conflict}


class Server:
    """A server at an http(s) address. The token goes by https, or to this machine alone."""

    def __init__(self, address: str, token: str) -> None:
        self._address = _checked(address)
        self._token = token.strip()

    def publish(self, name: str, directory: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """Publish the files in `directory`; answers the server's document. Raises what the server says, Unavailable."""
        form = Form(_files(directory), canonical.dumps(options))
        return self._post(f"v1/adapters/{name}/versions", form)

    def _post(self, path: str, form: Form) -> dict[str, Any]:
        import urllib3  # noqa: PLC0415 - an extra, for this alone
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

        headers = {"Authorization": f"Bearer {self._token}", **form.headers}
        pool = urllib3.PoolManager(timeout=_TIMEOUT, retries=False)
        url = f"{self._address}/{path}"
        try:
            reply = pool.request(
                "POST", url, body=form.chunks(), headers=headers, redirect=False, preload_content=False
            )
            data = reply.read(_ANSWER, decode_content=False)
        except (HTTPError, OSError) as error:
            raise Unavailable(
                f"{self._address}: {str(error)[:200]}", hint="check the address and the server"
            ) from error
        document = _object(data, reply.status)
        if reply.status != 200:
            raise _refusal(reply.status, document)
        return document


class Form:
    """Files and options as multipart/form-data (RFC 7578), never whole in memory."""

    def __init__(self, files: Mapping[str, Path], options: bytes) -> None:
        self._boundary = secrets.token_hex(16)
        self._parts: list[tuple[bytes, bytes | Path]] = [(self._head('name="options"'), options)]
        self._parts += [(self._head(f'name="file"; filename="{name}"'), path) for name, path in files.items()]
        self._end = f"--{self._boundary}--\r\n".encode()

    def _head(self, disposition: str) -> bytes:
        return f"--{self._boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()

    @property
    def headers(self) -> dict[str, str]:
        """What announces the form."""
        sizes = (len(head) + _size(content) + 2 for head, content in self._parts)
        kind = f"multipart/form-data; boundary={self._boundary}"
        return {"Content-Type": kind, "Content-Length": str(sum(sizes) + len(self._end))}

    def chunks(self) -> Iterator[bytes]:
        """The form's bytes."""
        for head, content in self._parts:
            yield head
            if isinstance(content, bytes):
                yield content
            else:
                with open(content, "rb") as file:
                    while chunk := file.read(_CHUNK):
                        yield chunk
            yield b"\r\n"
        yield self._end


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _files(directory: Path) -> dict[str, Path]:
    """What is sent: what the gate reads or keeps. Raises InputError; AdapterRefused for what is no adapter."""
    from exporter.peft.directory import read_directory  # noqa: PLC0415 - numpy and safetensors
    from exporter.peft.findings import Findings  # noqa: PLC0415 - as above

    findings = Findings()
    found = read_directory(directory, findings)
    if not found.names:
        listed = [each.to_json() for each in findings]
        raise errors.AdapterRefused(f"{directory} holds no adapter that could be sent", findings=listed)
    return {name: directory / name for name in (*found.names, *found.attachments)}


def _checked(address: str) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415 - for this alone

    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InputError(f"{address!r} is not a server", hint="give https://HOST[:PORT][/PATH]")
    if parts.scheme == "http" and not _near(parts.hostname):
        raise InputError(f"{address} would get the token in the clear", hint="use its https address")
    return address.rstrip("/")


def _near(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _object(data: bytes, status: int) -> dict[str, Any]:
    try:
        document = canonical.loads(data, what="the server's answer")
    except FormatError:
        document = None
    if not isinstance(document, dict):
        raise Unavailable(f"the server answered {status} without a document", hint="is this a ptdock server?")
    return document


def _refusal(status: int, problem: Mapping[str, Any]) -> PtdockError:
    """The error that a problem document tells of."""
    found = getattr(errors, str(problem.get("code")), None)
    kind: type[PtdockError] = _CODES.get(status, InputError if status < 500 and status != 429 else Unavailable)
    if isinstance(found, type) and issubclass(found, PtdockError):
        kind = found
    values = {"findings": problem["findings"]} if isinstance(problem.get("findings"), list) else {}
    detail, hint = str(problem.get("detail", f"the server answered {status}")), str(problem.get("hint", ""))
    return kind(detail[:4000], hint=hint[:4000], status=status, **values)
