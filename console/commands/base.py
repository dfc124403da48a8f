"""`ptdock base`: checkpoints that foundations are made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import PATH, read_lineage
from console.verbs import Noun
from registry.errors import Conflict, FormatError

if TYPE_CHECKING:
    from exporter.peft.pin import Pin
    from registry.digest import Digest


@click.group(cls=Noun)
def base() -> None:
    """Checkpoints that foundations are made from."""


@base.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--out", type=PATH, default=".", metavar="DIR|FILE", help="Where: the adapter's directory; - for none.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE|FILE", help="What else to remember of the training run.")
@click.option("--force", is_flag=True, help="Replace the pin of another base.")
@pass_app
def fingerprint(app: App, directory: Path, out: Path, meta: tuple[str, ...], force: bool) -> None:
    """Pin a base at training time: write ptdock.json.

    The fingerprint is folded from the digests of the checkpoint's tensors; names play no part. Publishing compares
    it with the foundation's base.
    """
    from exporter.base import fingerprint as fingerprint_of
    from exporter.base import read_base
    from exporter.peft.pin import FILE, Pin

    lineage = read_lineage(meta)
    with app.progress() as progress:
        progress("hashing the checkpoint")
        with read_base(directory, progress=progress.bytes) as checkpoint:
            digest = fingerprint_of(checkpoint.tensors)
    file = None if str(out) == "-" else out / FILE if out.is_dir() else out
    if file is not None:
        lineage = {**_pinned(file, digest, force=force).lineage, **lineage}
        _write(file, Pin(digest, lineage))
    document: dict[str, Any] = {"schema": 1, "base": str(digest), "lineage": lineage}
    app.answer({**document, "file": str(file) if file else None, "tensors": len(checkpoint.tensors)}, str(digest))
    if file is not None:
        app.note(f"wrote {render.clean(file)}")


def _pinned(file: Path, digest: Digest, *, force: bool) -> Pin:
    """What the file says already. Raises Conflict when it pins another base, FormatError when it is no pin."""
    from exporter.peft.findings import Findings
    from exporter.peft.pin import Pin, read_pin

    if not file.exists():
        return Pin()
    findings = Findings()
    pin = read_pin(file.read_bytes(), findings)
    for finding in findings:
        raise FormatError(finding.message, hint=f"repair {file}, or delete it")
    if pin.base not in (None, digest) and not force:
        raise Conflict(
            f"{file} pins another base: {pin.base.short}, this one is {digest.short}",
            hint="replace it with --force, or write elsewhere with --out",
            expected=str(pin.base),
            actual=str(digest),
        )
    return pin


def _write(file: Path, pin: Pin) -> None:
    from console.plain import write

    write(file, pin.to_bytes() + b"\n")
