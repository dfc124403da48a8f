"""What an archive says that it holds, as a document: contents to canonical JSON and back, strictly. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from registry import canonical, lineage
from registry.archive.contents import Contents, SavedBuild, SavedFoundation, SavedProof, SavedVersion
from registry.artifacts import (
    PARTS,
    Base,
    Build,
    ExternalTensor,
    Foundation,
    Proof,
    Runtime,
    Source,
    Template,
    Version,
)
from registry.digest import Descriptor, Digest
from registry.documents import SCHEMA, Fields, opened
from registry.errors import FormatError

MAX_BYTES = 512 << 20
INITIAL = "initial/"  # stands before the files of an initial adapter; the only way in which a name has parts
KNOWN = (
    "adapter attachments backends base bases build builds context critical digest document dtype executorch factors"
    " file files fingerprint foundation foundations graph guaranteed hollow key kv_cache_bytes lineage minimum modules"
    " names offset operators parts program_size prompt proofs recipes registry revoked runtime schema self_test shape"
    " size source structure table template templates tensors version versions warnings yanked"
)


def to_bytes(contents: Contents) -> bytes:
    """The document's only bytes (canonical JSON)."""
    return canonical.dumps(
        {
            "schema": SCHEMA,
            "critical": [],
            "registry": contents.registry,
            "bases": list(map(_base, contents.bases)),
            "foundations": list(map(_foundation, contents.foundations)),
            "templates": list(map(_template, contents.templates)),
            "versions": list(map(_version, contents.versions)),
            "builds": list(map(_build, contents.builds)),
            "proofs": list(map(_proof, contents.proofs)),
        }
    )


def from_bytes(data: bytes) -> Contents:
    """Read a document strictly: every name is checked, every link leads to something in it. Raises FormatError."""
    fields = opened(data, what="archive", known=KNOWN, limit=MAX_BYTES)
    contents = Contents(
        registry=fields.label("registry"),
        bases=tuple(map(_read_base, fields.objects("bases"))),
        foundations=tuple(map(_read_foundation, fields.objects("foundations"))),
        templates=tuple(map(_read_template, fields.objects("templates"))),
        versions=tuple(map(_read_version, fields.objects("versions"))),
        builds=tuple(map(_read_build, fields.objects("builds"))),
        proofs=tuple(map(_read_proof, fields.objects("proofs"))),
    )
    return contents.linked()


def _files(files: Mapping[str, Descriptor]) -> dict[str, Any]:
    return {name: file.to_json() for name, file in files.items()}


def _base(base: Base) -> dict[str, Any]:
    prompt = {"prompt": base.prompt.to_json()} if base.prompt else {}
    tensors, files = base.tensors.to_json(), _files(base.files)
    return {"fingerprint": str(base.fingerprint), "tensors": tensors, "files": files, **prompt}


def _foundation(saved: SavedFoundation) -> dict[str, Any]:
    found = saved.foundation
    return {
        **found.file.to_json(),
        "base": str(found.base),
        "modules": found.modules.to_json(),
        "recipes": [dict(recipe) for recipe in saved.recipes],
        "names": list(saved.names),
        "tensors": [tensor.to_json() for tensor in found.tensors],
    }


def _template(made: Template) -> dict[str, Any]:
    return {
        "digest": str(made.digest),
        "foundation": str(made.foundation),
        "structure": dict(made.structure),
        "context": made.context,
        "graph": made.graph,
        "executorch": made.executorch,
        "hollow": made.hollow.to_json(),
        "table": made.table.to_json(),
        "program_size": made.program_size,
        "kv_cache_bytes": made.kv_cache_bytes,
        "runtime": made.runtime.to_json(),
    }


def _version(saved: SavedVersion) -> dict[str, Any]:
    found = saved.version
    return {
        "adapter": found.adapter,
        "version": found.version,
        "files": _files(saved.source.files),
        "attachments": _files(saved.source.attachments),
        "lineage": dict(found.lineage),
        **({} if found.yanked is None else {"yanked": found.yanked}),
    }


def _build(saved: SavedBuild) -> dict[str, Any]:
    made = saved.build
    return {
        "adapter": made.adapter,
        "version": made.version,
        "template": saved.template,
        "file": made.file.to_json(),
        "factors": made.factors.to_json(),
        "parts": _files(made.parts),
        "warnings": list(made.warnings),
        **({} if made.revoked is None else {"revoked": made.revoked}),
    }


def _proof(saved: SavedProof) -> dict[str, Any]:
    proof = saved.proof
    replayed = {"self_test": proof.self_test.to_json()} if proof.self_test else {}
    return {"build": saved.build, "document": proof.document.to_json(), **replayed}


def _named(fields: Fields, name: str) -> dict[str, Descriptor]:
    """Files by name: plain names, so that none leads out of a directory."""
    table = fields.object(name)
    return {_plain(table, each): table.descriptor(each) for each in table.keys()}  # noqa: SIM118 - no mapping


def _plain(table: Fields, name: str) -> str:
    inner = name.removeprefix(INITIAL)
    if not inner or PurePosixPath(inner).name != inner or "\\" in inner or "\0" in inner or len(name) > 300:
        raise FormatError(f"{table.path}: {name[:100]!r} is no name of a file")
    return name


def _objects(fields: Fields, name: str) -> tuple[dict[str, Any], ...]:
    return tuple({key: each.get(key) for key in each.keys()} for each in fields.objects(name))  # noqa: SIM118


def _read_base(fields: Fields) -> Base:
    tensors = fields.descriptor("tensors")
    fingerprint = fields.digest("fingerprint")
    if fingerprint != tensors.digest:
        raise FormatError(f"{fields.path}: a base's fingerprint is the digest of its tensor table")
    return Base(fingerprint, tensors, _named(fields, "files"), "", fields.optional("prompt", fields.descriptor))


def _read_foundation(fields: Fields) -> SavedFoundation:
    recipes = _objects(fields, "recipes")
    if not recipes:
        raise fields.refuse("recipes", "at least one recipe")
    names = tuple(Fields({"name": name}, fields.path).name("name", what="foundation") for name in fields.items("names"))
    tensors = tuple(map(_read_tensor, fields.objects("tensors")))
    file = Descriptor(fields.digest("digest"), fields.integer("size"))
    foundation = Foundation(file, fields.digest("base"), recipes[0], fields.descriptor("modules"), tensors)
    return SavedFoundation(foundation, names, recipes)


def _read_tensor(fields: Fields) -> ExternalTensor:
    return ExternalTensor(
        key=fields.label("key"),
        names=fields.texts("names"),
        digest=fields.digest("digest"),
        size=fields.integer("size"),
        offset=fields.integer("offset"),
        dtype=fields.label("dtype"),
        shape=fields.integers("shape"),
    )


def _read_template(fields: Fields) -> Template:
    runtime, structure = fields.object("runtime"), fields.object("structure")
    structure.object("modules")
    return Template(
        digest=fields.digest("digest"),
        foundation=fields.digest("foundation"),
        structure={name: structure.get(name) for name in structure.keys()},  # noqa: SIM118 - no mapping
        context=fields.integer("context", low=1),
        graph=fields.integer("graph"),
        executorch=fields.label("executorch"),
        hollow=fields.descriptor("hollow"),
        table=fields.descriptor("table"),
        program_size=fields.integer("program_size"),
        runtime=Runtime(
            runtime.pair("minimum"), runtime.pair("guaranteed"), runtime.texts("backends"), runtime.texts("operators")
        ),
        kv_cache_bytes=fields.integer("kv_cache_bytes"),
    )


def _read_version(fields: Fields) -> SavedVersion:
    source = Source(_named(fields, "files"), _named(fields, "attachments"))
    told = fields.object("lineage")
    kept = {name: told.get(name) for name in told.keys()}  # noqa: SIM118 - no mapping
    lineage.check(kept, what=f"{fields.path}.lineage")
    yanked = fields.optional("yanked", fields.text)
    name, version = fields.name("adapter", what="adapter"), fields.version("version")
    return SavedVersion(Version(name, version, source.digest, kept, "", yanked), source)


def _read_build(fields: Fields) -> SavedBuild:
    parts = fields.object("parts")
    build = Build(
        adapter=fields.name("adapter", what="adapter"),
        version=fields.version("version"),
        foundation=_UNKNOWN,
        template=_UNKNOWN,
        file=fields.descriptor("file"),
        factors=fields.descriptor("factors"),
        warnings=tuple(Fields({"warning": each}, fields.path).text("warning") for each in fields.items("warnings")),
        revoked=fields.optional("revoked", fields.text),
        parts={role: parts.descriptor(role) for role in PARTS if role in parts},
    )
    return SavedBuild(build, fields.integer("template"))


_UNKNOWN = Digest(bytes(32))  # until the template is looked up


def _read_proof(fields: Fields) -> SavedProof:
    self_test = fields.optional("self_test", fields.descriptor)
    return SavedProof(fields.integer("build"), Proof(fields.descriptor("document"), self_test, ""))
