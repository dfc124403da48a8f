"""Rows in the words of the events that made them, for verification to compare: registry.states says which fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, Label, Text, func, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from registry import states
from registry import tables as t
from registry.catalog import foundations
from registry.digest import Digest

_ROWS = 1000  # fetched at a time


@dataclass(frozen=True, slots=True)
class Told:
    """A row in the words of the event that made it, and when it was made (`created`)."""

    subject: str
    state: Mapping[str, Any]
    created: str


def published(session: Session, programs: Collection[Digest]) -> Iterator[Told]:
    """The builds with these programs, each with its version, as `adapter.publish` tells of them."""
    query = (
        select(
            *(t.Build.id, t.Build.adapter, t.Build.version, t.Build.warnings, t.Build.created, t.Version.lineage),
            *(_text(t.Build.foundation), _text(t.Build.digest), _text(t.Build.factors), _text(t.Version.source)),
            _text(t.Template.digest).label("template"),
        )
        .join(t.Version, (t.Version.adapter == t.Build.adapter) & (t.Version.version == t.Build.version))
        .join(t.Template, t.Template.id == t.Build.template)
        .where(t.Build.digest.in_(programs))
    )
    rows = session.execute(query).all()
    here = t.Build.id.in_([row.id for row in rows])
    parts, attachments = _parts(session, here), _attachments(session, here)
    for row in rows:
        built = states.build(
            source=row.source,
            foundation=row.foundation,
            template=row.template,
            program=row.digest,
            factors=row.factors,
            warnings=row.warnings,
            parts=parts.get(row.id, {}),
        )
        beside = states.version(row.lineage, attachments.get((row.adapter, row.version), {}))
        yield Told(f"{row.adapter}@{row.version}", {**built, **beside}, row.created)


def _text(column: InstrumentedAttribute[Digest]) -> Label[str]:
    """A digest as events tell it."""
    return type_coerce(column, Text).label(column.key)


def _parts(session: Session, here: ColumnElement[bool]) -> dict[int, dict[str, str]]:
    """What devices may want of some builds, by row and role."""
    query = select(t.BuildPart.build, t.BuildPart.role, _text(t.BuildPart.blob))
    found: dict[int, dict[str, str]] = {}
    for row in session.execute(query.join(t.Build, t.Build.id == t.BuildPart.build).where(here)):
        found.setdefault(row.build, {})[row.role] = row.blob
    return found


def _attachments(session: Session, here: ColumnElement[bool]) -> dict[tuple[str, str], dict[str, str]]:
    """The attachments of some builds' versions, by version and name."""
    same = (t.Build.adapter == t.Attachment.adapter) & (t.Build.version == t.Attachment.version)
    query = select(t.Attachment.adapter, t.Attachment.version, t.Attachment.name, _text(t.Attachment.blob))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in session.execute(query.join(t.Build, same).where(here)):
        found.setdefault((row.adapter, row.version), {})[row.name] = row.blob
    return found


def proven(session: Session, proofs: Collection[Digest]) -> Iterator[Told]:
    """The proofs with these documents, as `adapter.prove` tells of them."""
    query = (
        select(t.Build.adapter, t.Build.version, t.Build.digest, t.Proof.document, t.Proof.self_test, t.Proof.created)
        .join(t.Build, t.Build.id == t.Proof.build)
        .where(t.Proof.document.in_(proofs))
    )
    for row in session.execute(query):
        test = str(row.self_test) if row.self_test else None
        state = {"build": str(row.digest), "proof": str(row.document), "self_test": test}
        yield Told(f"{row.adapter}@{row.version}", state, row.created)


def released(session: Session, documents: Collection[Digest]) -> Iterator[Told]:
    """The releases with these documents, as `release.create` tells of them."""
    query = select(t.Release.number, t.Release.document, t.Release.created).where(t.Release.document.in_(documents))
    for row in session.execute(query):
        yield Told(f"release {row.number}", {"document": str(row.document)}, row.created)


def misdated(session: Session) -> Iterator[tuple[str, str]]:
    """The versions and adapters that were not made with their first build, each with when they say that they were."""
    earlier = aliased(t.Build)
    same = (earlier.adapter == t.Version.adapter) & (earlier.version == t.Version.version)
    first = select(func.min(earlier.id)).where(same).correlate(t.Version).scalar_subquery()
    query = (
        select(t.Version.adapter, t.Version.version, t.Version.created)
        .join(t.Build, t.Build.id == first, isouter=True)
        .where(t.Build.created.is_distinct_from(t.Version.created))
    )
    for row in session.execute(query.execution_options(yield_per=_ROWS)):
        yield f"{row.adapter}@{row.version}", row.created
    made = (t.Version.adapter == t.Adapter.name) & (t.Version.created == t.Adapter.created)
    for adapter in session.scalars(select(t.Adapter).where(~select(t.Version.version).where(made).exists())):
        yield f"adapter {adapter.name}", adapter.created


def yanks(session: Session) -> dict[str, tuple[str | None, str | None]]:
    """Why each yanked version is, and since when."""
    here = t.Version.yanked.is_not(None) | t.Version.yanked_at.is_not(None)
    query = select(t.Version.adapter, t.Version.version, t.Version.yanked, t.Version.yanked_at).where(here)
    return {f"{row.adapter}@{row.version}": (row.yanked, row.yanked_at) for row in session.execute(query)}


def revocations(session: Session) -> Iterator[tuple[str, Digest, str | None, str | None]]:
    """Every build of a program that is revoked under any name: whose it is, the program, why and since when."""
    revoked = select(t.Build.digest).where(t.Build.revoked.is_not(None) | t.Build.revoked_at.is_not(None))
    query = select(t.Build.adapter, t.Build.version, t.Build.digest, t.Build.revoked, t.Build.revoked_at)
    for row in session.execute(query.where(t.Build.digest.in_(revoked)).execution_options(yield_per=_ROWS)):
        yield f"{row.adapter}@{row.version}", row.digest, row.revoked, row.revoked_at


def counts(session: Session) -> dict[str, int]:
    """How many builds, proofs and releases there are."""
    tables = {"builds": t.Build, "proofs": t.Proof, "releases": t.Release}
    return {
        name: session.scalar(select(func.count()).select_from(table.__table__)) or 0 for name, table in tables.items()
    }


def facts(session: Session) -> dict[str, dict[str, Any]]:
    """What stands in the rows that are few or may change, in the words of `registry.verification.facts`."""
    found: dict[str, dict[str, Any]] = {}
    for registry in session.execute(select(t.Identity.uuid, t.Identity.created)):
        found["registry"] = {"uuid": registry.uuid, "created": registry.created}
    for channel in session.scalars(select(t.Channel)):
        state = {"settings": channel.settings, "created": channel.created, "deleted": channel.deleted_at}
        found[f"channel {channel.name}"] = state
    for token in session.scalars(select(t.Token)):
        state = states.token(token.id, token.scope, token.digest)
        found[f"token {token.name}"] = {**state, "created": token.created, "revoked": token.revoked_at}
    for base in foundations.bases(session):
        found[f"base {base.fingerprint}"] = states.base(base)
    for row in session.execute(select(t.Base.fingerprint, t.Base.created)):
        found[f"base {row.fingerprint}"]["created"] = row.created
    _add_foundations(session, found)
    return found


def _add_foundations(session: Session, found: dict[str, dict[str, Any]]) -> None:
    """The facts of foundations: they, their names, their recipes and their templates."""
    for name, meant in foundations.names(session).items():
        found[f"foundation name {name}"] = {"foundation": str(meant)}
    for led in session.scalars(select(t.FoundationRecipe)):
        found[f"recipe {led.recipe} of foundation {led.foundation}"] = {"created": led.created}
    for row in session.execute(select(t.Foundation.digest, t.Foundation.created)):
        known = foundations.foundation(session, row.digest)
        found[f"foundation {row.digest}"] = {**(states.foundation(known) if known else {}), "created": row.created}
        dates = select(t.Template.created).join(t.Structure, t.Structure.digest == t.Template.structure)
        here = session.scalars(dates.where(t.Template.foundation == row.digest).order_by(t.Template.id))
        for made, created in zip(foundations.templates(session, row.digest), here, strict=True):
            name = numbered(found, f"template {made.digest} of foundation {row.digest}")
            found[name] = {**states.template(made), "created": created}


def pinned_tables(session: Session) -> set[Digest]:
    """The foundations whose tensor table the log pins: those that an earlier version recorded are not among them."""
    told = session.execute(select(t.Event.subject, t.Event.after).where(t.Event.action == "foundation.add"))
    return {Digest.parse(row.subject) for row in told if isinstance(row.after, dict) and "tensors" in row.after}


def numbered(found: Collection[str], name: str) -> str:
    """A name that is not used yet: equal templates may have been made for several versions of ExecuTorch."""
    if name not in found:
        return name
    return next(each for each in (f"{name} again ({n})" for n in count(2)) if each not in found)
