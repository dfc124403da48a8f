"""Bases, foundations and templates, and the names that foundations go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session

from registry import artifacts, canonical
from registry import tables as t
from registry.catalog import content
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.documents import Fields


def base(session: Session, fingerprint: Digest) -> artifacts.Base | None:
    """The base with this fingerprint, when it is recorded."""
    row = session.get(t.Base, fingerprint)
    return _base(session, row) if row else None


def bases(session: Session) -> tuple[artifacts.Base, ...]:
    """All bases, oldest first."""
    rows = session.scalars(select(t.Base).order_by(t.Base.created, t.Base.fingerprint))
    return tuple(_base(session, row) for row in rows)


def _base(session: Session, row: t.Base) -> artifacts.Base:
    query = select(t.BaseFile.name, t.Blob.digest, t.Blob.size).join(t.Blob, t.Blob.digest == t.BaseFile.blob)
    files = session.execute(query.where(t.BaseFile.base == row.fingerprint).order_by(t.BaseFile.name))
    return artifacts.Base(
        fingerprint=row.fingerprint,
        tensors=content.sizes(session, [row.tensors])[row.tensors],
        prompt=content.sizes(session, [row.prompt])[row.prompt] if row.prompt else None,
        files={file.name: Descriptor(file.digest, file.size) for file in files},
        hint=row.hint,
    )


def insert_base(change: Change, new: artifacts.Base) -> None:
    """Record a base that is not recorded yet."""
    values = {
        "fingerprint": new.fingerprint,
        "tensors": new.tensors.digest,
        "hint": new.hint,
        "prompt": new.prompt.digest if new.prompt else None,
        "created": change.at,
    }
    change.session.execute(insert(t.Base).values(values))
    _insert_files(change, new)


def replace_base(change: Change, new: artifacts.Base) -> None:
    """Give a recorded base another hint, another prompt and other files."""
    values = {"hint": new.hint, "prompt": new.prompt.digest if new.prompt else None}
    change.session.execute(update(t.Base).where(t.Base.fingerprint == new.fingerprint).values(values))
    change.session.execute(delete(t.BaseFile).where(t.BaseFile.base == new.fingerprint))
    _insert_files(change, new)


def _insert_files(change: Change, new: artifacts.Base) -> None:
    rows = [{"base": new.fingerprint, "name": name, "blob": file.digest} for name, file in new.files.items()]
    if rows:
        change.session.execute(insert(t.BaseFile), rows)


def names(session: Session) -> dict[str, Digest]:
    """What every name means, sorted by name."""
    rows = session.scalars(select(t.FoundationName).order_by(t.FoundationName.name))
    return {row.name: row.foundation for row in rows}


def set_name(change: Change, name: str, foundation: Digest) -> None:
    """Let a name mean a foundation from now on."""
    change.session.execute(delete(t.FoundationName).where(t.FoundationName.name == name))
    change.session.execute(insert(t.FoundationName).values(name=name, foundation=foundation))


def exists(session: Session, digest: Digest) -> bool:
    """Whether a foundation is recorded, without its tensor table."""
    return session.get(t.Foundation, digest) is not None


def foundation(session: Session, digest: Digest) -> artifacts.Foundation | None:
    """The foundation with this digest, when it is recorded; with the recipe that first led to it."""
    row = session.get(t.Foundation, digest)
    if row is None:
        return None
    blobs = content.sizes(session, [row.digest, row.modules])
    tensors = session.scalars(
        select(t.FoundationTensor)
        .where(t.FoundationTensor.foundation == digest)
        .order_by(t.FoundationTensor.offset, t.FoundationTensor.key)
    )
    return artifacts.Foundation(
        file=blobs[row.digest],
        base=row.base,
        recipe=next(iter(recipes(session, digest)), {}),  # a foundation that lost its recipes is for verify to name
        modules=blobs[row.modules],
        tensors=tuple(_tensor(tensor) for tensor in tensors),
    )


def _tensor(row: t.FoundationTensor) -> artifacts.ExternalTensor:
    shape = tuple(row.shape)
    return artifacts.ExternalTensor(row.key, tuple(row.names), row.digest, row.size, row.offset, row.dtype, shape)


def recipes(session: Session, foundation: Digest) -> tuple[Mapping[str, Any], ...]:
    """The recipes that led to a foundation, the first one first."""
    query = select(t.Recipe.document).join(t.FoundationRecipe, t.FoundationRecipe.recipe == t.Recipe.digest)
    order = (t.FoundationRecipe.created, t.Recipe.digest)
    return tuple(session.scalars(query.where(t.FoundationRecipe.foundation == foundation).order_by(*order)))


def made_from(session: Session, base: Digest, recipe: Mapping[str, Any]) -> Digest | None:
    """The newest foundation that this recipe made of this base."""
    query = select(t.Foundation.digest).join(t.FoundationRecipe, t.FoundationRecipe.foundation == t.Foundation.digest)
    wanted = (t.Foundation.base == base) & (t.FoundationRecipe.recipe == Digest.of(canonical.dumps(recipe)))
    return session.scalar(query.where(wanted).order_by(t.FoundationRecipe.created.desc()).limit(1))


def digests(session: Session) -> tuple[Digest, ...]:
    """All foundations' digests, oldest first."""
    return tuple(session.scalars(select(t.Foundation.digest).order_by(t.Foundation.created, t.Foundation.digest)))


def insert_foundation(change: Change, new: artifacts.Foundation) -> None:
    """Record a foundation that is not recorded yet, with its tensor table."""
    values = {"digest": new.file.digest, "base": new.base, "modules": new.modules.digest, "created": change.at}
    change.session.execute(insert(t.Foundation).values(values))
    rows = [
        {
            "foundation": new.file.digest,
            "key": tensor.key,
            "names": list(tensor.names),
            "digest": tensor.digest,
            "size": tensor.size,
            "offset": tensor.offset,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
        }
        for tensor in new.tensors
    ]
    if rows:
        change.session.execute(insert(t.FoundationTensor), rows)


def add_recipe(change: Change, foundation: Digest, recipe: Mapping[str, Any]) -> bool:
    """Remember that a recipe led to a foundation; answers whether that is new."""
    digest = Digest.of(canonical.dumps(recipe))
    if change.session.get(t.FoundationRecipe, (foundation, digest)):
        return False
    if change.session.get(t.Recipe, digest) is None:
        change.session.execute(insert(t.Recipe).values(digest=digest, document=recipe))
    values = {"foundation": foundation, "recipe": digest, "created": change.at}
    change.session.execute(insert(t.FoundationRecipe).values(values))
    return True


def dependants(session: Session, foundation: Digest) -> tuple[str, ...]:
    """What would lose its foundation: builds as `adapter NAME@VERSION`, releases as `release N`."""
    builds = session.execute(
        select(t.Build.adapter, t.Build.version)
        .where(t.Build.foundation == foundation)
        .distinct()
        .order_by(t.Build.adapter, t.Build.version)
    )
    lines = session.scalars(select(t.Line.release).where(t.Line.foundation == foundation).order_by(t.Line.release))
    return (*(f"adapter {row.adapter}@{row.version}" for row in builds), *(f"release {number}" for number in lines))


def delete_foundation(change: Change, digest: Digest) -> None:
    """Forget a foundation on which nothing depends, with its names, recipes, tensors and templates."""
    for table in (t.FoundationName, t.FoundationRecipe, t.FoundationTensor, t.Template):
        change.session.execute(delete(table).where(table.foundation == digest))
    change.session.execute(delete(t.Foundation).where(t.Foundation.digest == digest))


def template_id(session: Session, wanted: artifacts.Template) -> int | None:
    """The row of the template with this foundation, structure, context, graph and ExecuTorch version."""
    key = (wanted.foundation, wanted.structure_digest, wanted.context, wanted.graph, wanted.executorch)
    return session.scalar(select(t.Template.id).where(_same_template(*key)))


def find_template(
    session: Session, foundation: Digest, structure: Digest, context: int, graph: int, executorch: str
) -> artifacts.Template | None:
    """The template with this key, when it is recorded."""
    found = _templates(
        session, _select_templates().where(_same_template(foundation, structure, context, graph, executorch))
    )
    return found[0] if found else None


def templates(session: Session, foundation: Digest) -> tuple[artifacts.Template, ...]:
    """A foundation's templates, oldest first."""
    return _templates(session, _select_templates().where(t.Template.foundation == foundation))


def templates_with(session: Session, blob: Digest) -> tuple[artifacts.Template, ...]:
    """The templates whose hollow program (plain or as it is stored) or relocation table a blob is, oldest first."""
    here = (t.Template.hollow == blob) | (t.Template.relocations == blob) | (t.Template.digest == blob)
    return _templates(session, _select_templates().where(here))


def bases_with(session: Session, blob: Digest) -> tuple[artifacts.Base, ...]:
    """The bases whose tensor table, prompt or file a blob is, oldest first."""
    file = select(t.BaseFile.base).where(t.BaseFile.blob == blob)
    here = (t.Base.tensors == blob) | (t.Base.prompt == blob) | t.Base.fingerprint.in_(file)
    rows = session.scalars(select(t.Base).where(here).order_by(t.Base.created, t.Base.fingerprint))
    return tuple(_base(session, row) for row in rows)


def template_of(session: Session, build: artifacts.Build) -> artifacts.Template | None:
    """The template that a build went through."""
    query = _select_templates().join(t.Build, t.Build.template == t.Template.id)
    same = (t.Build.adapter == build.adapter) & (t.Build.version == build.version)
    found = _templates(
        session, query.where(same, t.Build.foundation == build.foundation, t.Build.digest == build.file.digest)
    )
    return found[0] if found else None


def insert_template(change: Change, new: artifacts.Template) -> None:
    """Record a template whose key is not recorded yet."""
    structure = new.structure_digest
    if change.session.get(t.Structure, structure) is None:
        change.session.execute(insert(t.Structure).values(digest=structure, document=new.structure))
    values = {
        "digest": new.digest,
        "foundation": new.foundation,
        "structure": structure,
        "context": new.context,
        "graph": new.graph,
        "executorch": new.executorch,
        "hollow": new.hollow.digest,
        "relocations": new.table.digest,
        "program_size": new.program_size,
        "runtime": new.runtime.to_json(),
        "kv_cache_bytes": new.kv_cache_bytes,
        "created": change.at,
    }
    change.session.execute(insert(t.Template).values(values))


def _same_template(foundation: Digest, structure: Digest, context: int, graph: int, executorch: str) -> Any:
    same = (t.Template.foundation == foundation) & (t.Template.structure == structure)
    return same & (t.Template.context == context) & (t.Template.graph == graph) & (t.Template.executorch == executorch)


def _select_templates() -> Select[t.Template, Any]:
    query = select(t.Template, t.Structure.document)
    return query.join(t.Structure, t.Structure.digest == t.Template.structure).order_by(t.Template.id)


def _templates(session: Session, query: Select[t.Template, Any]) -> tuple[artifacts.Template, ...]:
    rows = session.execute(query).all()
    blobs = content.sizes(session, {digest for row, _ in rows for digest in (row.hollow, row.relocations)})
    return tuple(_template(row, structure, blobs) for row, structure in rows)


def _template(row: t.Template, structure: Any, blobs: Mapping[Digest, Descriptor]) -> artifacts.Template:
    return artifacts.Template(
        digest=row.digest,
        foundation=row.foundation,
        structure=structure,
        context=row.context,
        graph=row.graph,
        executorch=row.executorch,
        hollow=blobs[row.hollow],
        table=blobs[row.relocations],
        program_size=row.program_size,
        runtime=_runtime(row),
        kv_cache_bytes=row.kv_cache_bytes,
    )


def _runtime(row: t.Template) -> artifacts.Runtime:
    fields = Fields(row.runtime, f"the runtime of template {row.digest}")
    return artifacts.Runtime(
        minimum=fields.pair("minimum"),
        guaranteed=fields.pair("guaranteed"),
        backends=fields.texts("backends"),
        operators=fields.texts("operators"),
    )
