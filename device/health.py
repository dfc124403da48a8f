"""Reports to a server how syncs went, where that was switched on; nothing of it can hold up or undo a sync.

    with watched(directory, installed): ...           # around loading and running: what fails or dies is remembered
    send(address, directory, result)                  # typed codes and an anonymous id, nothing else

What may be reported stands in registry.health. A program that takes the process down leaves its mark in the directory,
and the next report says `crash`.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from device.installed import Installed
from device.result import SyncResult
from registry.errors import InputError, PtdockError
from registry.health import CODES, MOST, Report, Reports, anonymous_id

_TIMEOUT = urllib3.Timeout(connect=5, read=10)
_SECRET = "health.key"  # noqa: S105 - a file's name
_MARKS = "running"
_FAILED = ".failed"


@contextmanager
def watched(directory: Path, installed: Installed) -> Iterator[None]:
    """Remember for the next report when what happens inside fails, or ends the process."""
    mark = directory / _MARKS / f"{os.getpid()}.json"
    _write(mark, installed, "crash")
    try:
        yield
    except InputError:  # the prompt's fault, not the program's
        raise
    except PtdockError:
        _write(mark.with_suffix(_FAILED), installed, "load")
        raise
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)


def send(
    address: str,
    directory: Path,
    outcome: SyncResult | PtdockError,
    note: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Post what a sync came to, and what failed or died since the last report; whether it was heard.

    `address` is the server's, as for a sync; `outcome` what `sync` answered or raised. Never raises: `note` hears why
    nothing was sent.
    """
    try:
        left = list(_left(directory / _MARKS))
        found = [*_told(outcome), *(report for _, report in left if report)]
        if not found:
            return False
        reports = Reports(anonymous_id(_secret(directory), clock()), tuple(dict.fromkeys(found))[:MOST])
        status = _post(f"{address.rstrip('/')}/v1/health", reports)
        if status != 204:
            note(f"the report was not taken: the server answered {status}")
            return False
        for path, _ in left:
            path.unlink(missing_ok=True)
    except (HTTPError, OSError, ValueError) as error:
        note(f"the report was not sent: {str(error)[:200]}")
        return False
    return True


def _post(url: str, reports: Reports) -> int:
    http = urllib3.PoolManager(timeout=_TIMEOUT, retries=False)
    headers = {"User-Agent": "ptdock-device", "Content-Type": "application/json"}
    body = json.dumps(reports.to_json()).encode()
    response = http.request("POST", url, body=body, headers=headers, redirect=False, preload_content=False)
    response.close()  # unread: nothing in it could matter
    return response.status


def _told(outcome: SyncResult | PtdockError) -> Iterator[Report]:
    """Of each channel whose release is known: the one that was to become active, else the one that is."""
    told: list[dict[str, Any]] = (
        [each.to_json() for each in outcome.channels]
        if isinstance(outcome, SyncResult)
        else outcome.values.get("channels", [])
    )
    for each in told:
        release = each["offered"] or each["release"]
        if release:
            yield Report(each["channel"], release, each["code"] if each["code"] in CODES else "error")


def _write(mark: Path, installed: Installed, code: str) -> None:
    about = {"channel": installed.channel, "release": installed.release, "code": code}
    with suppress(OSError):  # a full or read-only disk: then nothing is reported
        mark.parent.mkdir(exist_ok=True)
        mark.write_text(json.dumps(about))


def _left(marks: Path) -> Iterator[tuple[Path, Report | None]]:
    """The marks of loads that failed, and of processes that have ended without taking theirs away."""
    for path in sorted(marks.iterdir()) if marks.is_dir() else ():
        if path.suffix != _FAILED and _lives(path.stem):
            continue
        try:
            about = json.loads(path.read_text())
            yield path, Report(about["channel"], about["release"], about["code"])
        except (ValueError, KeyError, TypeError):  # the process died while it wrote it
            yield path, None


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _secret(directory: Path) -> bytes:
    """The device's own secret, made when it first reports."""
    path = directory / _SECRET
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
    return path.read_bytes()
