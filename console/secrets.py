"""Secrets from people: a passphrase comes from a variable, a file or the keyboard, never from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from console.options import read_file
from registry.errors import InputError

VARIABLE = "PTDOCK_ROOT_PASSPHRASE"
TOKEN = "PTDOCK_TOKEN"  # noqa: S105 - a variable's name


def passphrase(file: Path | None, *, fresh: bool) -> bytes:
    """The root keys' passphrase; `fresh` asks twice. Raises InputError when nobody can be asked, or it is empty."""
    if file is not None:
        found = read_file(file, hint="a file with the passphrase; - reads standard input").rstrip(b"\r\n")
    elif VARIABLE in os.environ:
        found = os.environ[VARIABLE].encode()
    elif sys.stdin.isatty():
        found = click.prompt(
            "Passphrase of the root keys", hide_input=True, confirmation_prompt=fresh, err=True
        ).encode()
    else:
        raise InputError("the root keys' passphrase is needed", hint=f"set {VARIABLE}, or give --passphrase-file FILE")
    if not found:
        raise InputError("the root keys' passphrase is empty", hint="choose one that you can keep")
    return found


def token(file: Path | None) -> str:
    """The token for a server. Raises InputError when there is none."""
    if file is None:
        found = os.environ.get(TOKEN, "")
    else:
        found = read_file(file, hint="a file with the token; - reads standard input").decode(errors="replace")
    if not found.strip().isascii() or not found.strip():
        raise InputError("the server needs a token", hint=f"set {TOKEN}, or give --token-file FILE")
    return found.strip()
