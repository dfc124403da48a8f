"""How bases, foundations and templates are recorded: the same again is a no-op, other bytes under a name a conflict."""

from __future__ import annotations

from registry import lookup, states
from registry.artifacts import Base, Foundation, Template
from registry.catalog import foundations
from registry.catalog.log import Change
from registry.digest import Digest
from registry.errors import Conflict, IntegrityError, NotFound


def add_base(change: Change, new: Base, *, replace: bool) -> None:
    """Record a base. Raises Conflict for other files under a known fingerprint, unless `replace`."""
    known = foundations.base(change.session, new.fingerprint)
    if known is None:
        foundations.insert_base(change, new)
        change.record("base.add", str(new.fingerprint), after=states.base(new))
        return
    if dict(known.files) != dict(new.files) and not replace:
        raise _other_files(known, new)
    if (dict(known.files), known.hint, known.prompt) != (dict(new.files), new.hint, new.prompt):
        foundations.replace_base(change, new)
        change.record("base.update", str(new.fingerprint), before=states.base(known), after=states.base(new))


def _other_files(known: Base, new: Base) -> Conflict:
    differing = sorted(name for name in {*known.files, *new.files} if known.files.get(name) != new.files.get(name))
    return Conflict(
        f"this base is recorded with other files: {', '.join(differing)}",
        hint="put the recorded files back, or replace them explicitly: releases made from now on carry the new ones",
        expected=states.digests(known.files),
        actual=states.digests(new.files),
    )


def add_foundation(change: Change, new: Foundation, name: str, *, replace_name: bool) -> None:
    """Record a foundation, its recipe and its name. Raises Conflict when the name means other bytes."""
    record_foundation(change, new)
    name_foundation(change, new.file.digest, name, replace_name=replace_name)


def record_foundation(change: Change, new: Foundation) -> None:
    """Record a foundation and a recipe of it. Raises NotFound without its base, Conflict when it is another's."""
    digest = new.file.digest
    lookup.base(change.session, new.base)
    known = foundations.foundation(change.session, digest)
    if known is None:
        foundations.insert_foundation(change, new)
        change.record("foundation.add", str(digest), after=states.foundation(new))
    elif (known.base, known.modules) != (new.base, new.modules):
        raise Conflict(
            f"{digest} is recorded as a foundation of another base, or with another module table",
            hint="the recorded one stays; please report this: equal bytes come from equal exports",
        )
    if foundations.add_recipe(change, digest, new.recipe):
        change.record("foundation.recipe", str(digest), after=dict(new.recipe))


def name_foundation(change: Change, digest: Digest, name: str, *, replace_name: bool) -> None:
    """Let a name mean a recorded foundation. Raises Conflict when it means another one, unless `replace_name`."""
    before = foundations.names(change.session).get(name)
    if before == digest:
        return
    if before is not None and not replace_name:
        raise Conflict(
            f"the name {name!r} means another foundation",
            hint="choose another name, or pass --replace-name; builds stay linked to the old one by digest",
            expected=str(before),
            actual=str(digest),
        )
    foundations.set_name(change, name, digest)
    change.record("foundation.name", name, before=before and str(before), after=str(digest))


def remove_foundation(change: Change, ref: str | Digest) -> Foundation:
    """Forget a foundation. Raises Conflict with what depends on it."""
    found = lookup.foundation(change.session, ref)
    digest = found.file.digest
    dependants = foundations.dependants(change.session, digest)
    if dependants:
        raise Conflict(
            f"{digest} is used by {len(dependants)}: {', '.join(dependants)}",
            hint="a foundation stays as long as a build or a release needs it",
            dependants=list(dependants),
        )
    foundations.delete_foundation(change, digest)
    change.record("foundation.remove", str(digest), before={"base": str(found.base)})
    return found


def add_template(change: Change, new: Template) -> Template:
    """Record a template, or answer the recorded one with the same key. Raises IntegrityError when its bytes differ."""
    if not foundations.exists(change.session, new.foundation):
        raise NotFound(f"no foundation {new.foundation}", hint="record the foundation before its templates")
    key = (new.foundation, new.structure_digest, new.context, new.graph, new.executorch)
    known = foundations.find_template(change.session, *key)
    if known is None:
        foundations.insert_template(change, new)
        change.record("template.add", str(new.digest), after=states.template(new))
        return new
    if (known.digest, known.table) != (new.digest, new.table):
        raise IntegrityError(
            "this structure was exported before and gave another program",
            hint="the first one stays; please report this: an export must be reproducible",
            expected=str(known.digest),
            actual=str(new.digest),
        )
    return known
