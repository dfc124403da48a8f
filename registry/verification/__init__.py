"""`ptdock verify`: nothing is taken on trust, nothing is changed, and all damage is reported at once.

- `inspection`   what one run reads from, and what it has found
- `stored`       the store against the rows: sizes, and every blob hashed on all processors
- `linked`       foundations against their tables, templates and programs against foundations
- `recorded`     rows against what must hold between them
- `told`         the audit log against itself and the rows; releases against the rows
- `issued`       manifests against the rows and the log

Nothing raises for damage, only for what does not answer; each damage names what depends on it. Every walk is a stream,
so memory does not grow with the registry. With `fast` nothing is hashed: sizes, links, rows and documents only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy.orm import Session

from registry.artifacts import Report
from registry.blobs import BlobStore
from registry.verification.inspection import Inspection, looking
from registry.verification.issued import check_manifests
from registry.verification.linked import check_foundations
from registry.verification.recorded import check_rows
from registry.verification.stored import check_store
from registry.verification.told import check_history


def verify(
    session: Session, store: BlobStore, *, now: float, fast: bool, progress: Callable[[int], None] | None
) -> Report:
    """Look at everything. `now` is Unix time in seconds; `progress` gets the number of bytes hashed."""
    inspection = Inspection.of(session, store, now=now, fast=fast)
    check_blobs = partial(check_store, progress=progress or _silent)
    for look in (check_rows, check_blobs, check_foundations, check_history, check_manifests):
        # A row that holds no digest or no JSON stops this look at it, not the others.
        with inspection.finding("database", "database"), looking(session):
            look(inspection)
    return inspection.report()


def _silent(_size: int) -> None:
    """Nobody wants to know."""
