"""`ptdock base`: checkpoints that foundations are made from."""

from __future__ import annotations

from pathlib import Path

import click

from console.app import App, pass_app
from console.options import PATH
from console.verbs import Noun


@click.group(cls=Noun)
def base() -> None:
    """Checkpoints that foundations are made from."""


@base.command()
@click.argument("directory", metavar="DIR", type=PATH)
@pass_app
def fingerprint(app: App, directory: Path) -> None:
    """Print what identifies a checkpoint: the digest of its tensors' digests."""
    from exporter.base import fingerprint as fingerprint_of
    from exporter.base import read_base

    with app.progress() as progress:
        progress("hashing the checkpoint")
        with read_base(directory, progress=progress.bytes) as checkpoint:
            digest = fingerprint_of(checkpoint.tensors)
    app.answer({"base": str(digest), "tensors": len(checkpoint.tensors)}, str(digest))
