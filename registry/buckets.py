"""Buckets with an S3 interface, by address: how they are reached, and what their refusals mean.

    bucket = open_bucket("s3://bucket/prefix", os.environ)
    with bucket.translated():
        obstore.put(bucket.objects, "a/b", b"bytes")        # at s3://bucket/prefix/a/b

Credentials come from the environment's usual variables (AWS_ACCESS_KEY_ID and so on, or the machine's own role), are
handed on, and are never stored; messages name the address and what went wrong, not the request, which holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from registry.errors import InputError, Unavailable

if TYPE_CHECKING:
    from obstore.store import S3Store

_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9!_.*'()-]+)*)/?", re.ASCII)
_HANDED_ON = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)
_RETRY: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_TIMES = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "300s"}  # one request has at most PART bytes

PART = 16 << 20
"""The most bytes that one request carries; S3 takes 10,000 parts, so an object may have 156 GiB."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, or a prefix in it; `address` names it in messages, `objects` is what obstore's functions take."""

    address: str
    objects: S3Store

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the bucket refuses into Unavailable; that an object is absent or there already passes.

        These two are FileNotFoundError and obstore's AlreadyExistsError.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415 - installed with the extra [s3]

        try:
            yield
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except (BaseError, OSError) as error:
            raise Unavailable(
                f"{self.address} cannot be used: {_reason(error)}",
                hint="check the bucket's name, the credentials in the environment and the network",
            ) from None  # the cause's text holds the whole request


def open_bucket(address: str, environment: Mapping[str, str]) -> Bucket:
    """The bucket at `s3://bucket/prefix`, of which nothing is asked yet. Raises InputError, Unavailable."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(f"{address} is not a bucket's address", hint="write s3://bucket/prefix")
    try:
        from obstore.store import S3Store  # noqa: PLC0415 - installed with the extra [s3]
    except ModuleNotFoundError:
        raise Unavailable("buckets need the package obstore", hint="pip install 'ptdock[s3]'") from None
    config: Any = {name.lower(): environment[name] for name in _HANDED_ON if environment.get(name)}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    client: Any = {**_TIMES, "allow_http": endpoint.startswith("http://")}  # who writes http:// means it
    name, prefix = match[1], match[2].strip("/")
    objects = S3Store(name, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRY)
    return Bucket(address.rstrip("/"), objects)


def missing(bucket: Bucket) -> Unavailable:
    """What an upload that finds nothing to put into means."""
    return Unavailable(f"{bucket.address}: there is no such bucket", hint="make it, or check its name")


def _reason(error: Exception) -> str:
    """The kind of a refusal, and the server's own word for it (`<Code>` of its answer), never the request."""
    text = str(error)
    found = re.search(r"<Code>(\w+)</Code>", text) or re.search(r"status code: ([0-9]{3} [A-Za-z ]+)", text)
    return f"{type(error).__name__}{f' ({found[1]})' if found else ''}"
