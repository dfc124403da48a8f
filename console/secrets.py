"""Secrets from people: a passphrase comes from a variable, a file or the keyboard, never from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from console.options import read_file
from registry.errors import InputError

VARIABLE = "PTDOCK_ROOT_PASSPHRASE"


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
