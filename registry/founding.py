"""How bases, foundations and templates are recorded: the same again is a no-op, other bytes under a name a conflict."""

from __future__ import annotations

from collections.abc import Mapping

from registry import lookup, states
from registry.artifacts import Base, Foundation, Template
from registry.catalog import foundations
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, IntegrityError, NotFound


def add_base(change: Change, new: Base, *, replace: bool) -> None:
    """Record a base. Raises Conflict for other files under a known fingerprint, unless `replace`."""
    known = foundations.base(change.session, new.fingerprint)
    if known is None:
        foundations.insert_base(change, new)
        change.record("base.add", str(new.fingerprint), after=states.base(new))
        return
    if not replace:
        check_files(known, new.files)
    if (dict(known.files), known.hint, known.prompt) != (dict(new.files), new.hint, new.prompt):
        foundations.replace_base(change, new)
        change.record("base.update", str(new.fingerprint), before=states.base(known), after=states.base(new))


def check_files(known: Base, files: Mapping[str, Descriptor]) -> None:
    """Raise Conflict where a base would come with another config or tokenizer than it is recorded with."""
    differing = sorted(name for name in {*known.files, *files} if known.files.get(name) != files.get(name))
    if not differing:
        return
    raise Conflict(
        f"this base is recorded with other files: {', '.join(differing)}",
        hint="put the recorded ones back, or use another store: devices prompt by them and adapters are held to them",
        expected=states.digests(known.files),
        actual=states.digests(files),
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
        raise _other_origin(change, known, new)
    if foundations.add_recipe(change, digest, new.recipe):
        change.record("foundation.recipe", str(digest), after=dict(new.recipe))


def _other_origin(change: Change, known: Foundation, new: Foundation) -> Conflict:
    """Equal bytes of two origins: a checkpoint that was saved in another dtype, or another module table."""
    names = [name for name, digest in foundations.names(change.session).items() if digest == known.file.digest]
    called = names[0] if names else str(known.file.digest)
    if known.base != new.base:
        return Conflict(
            f"these are the weights of the foundation {called}: its checkpoint only stores them otherwise",
            hint=f"use it: --foundation {called}",
            digest=str(known.file.digest),
        )
    return Conflict(
        f"{known.file.digest} is recorded with another module table",
        hint="the recorded one stays; please report this: equal bytes come from equal exports",
    )


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
