"""Versions against foundations: which have a build where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import select
from sqlalchemy.orm import Session

from registry import tables as t
from registry.digest import Digest
from registry.names import check_version


@dataclass(frozen=True, slots=True)
class Coverage:
    """One version, and its builds: for each foundation whether the newest one there is usable (not revoked)."""

    adapter: str
    version: str
    yanked: str | None
    builds: dict[Digest, bool]

    @property
    def ref(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.adapter}@{self.version}"


def coverage(session: Session, adapter: str | None = None) -> Iterator[Coverage]:
    """Every version with its builds, by adapter and precedence; of one adapter or of all."""
    here = (t.Build.adapter == t.Version.adapter) & (t.Build.version == t.Version.version)
    query = (
        select(t.Version.adapter, t.Version.version, t.Version.yanked, t.Build.foundation, t.Build.revoked)
        .outerjoin(t.Build, here)
        .order_by(t.Version.adapter, t.Build.id)
    )
    if adapter is not None:
        query = query.where(t.Version.adapter == adapter)
    rows = session.execute(query.execution_options(yield_per=1000))
    for name, some in groupby(rows, key=lambda row: row.adapter):
        versions: dict[str, Coverage] = {}
        for row in some:
            found = versions.setdefault(row.version, Coverage(name, row.version, row.yanked, {}))
            if row.foundation is not None:
                usable = row.revoked is None
                found.builds[row.foundation] = usable or found.builds.get(row.foundation, False)
        yield from sorted(versions.values(), key=lambda each: check_version(each.version))
