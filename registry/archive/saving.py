"""A selection of a registry with everything that it is linked to, written into one file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from registry import canonical, files, lookup
from registry.archive.contents import Contents, SavedBuild, SavedFoundation, SavedProof, SavedVersion
from registry.archive.document import to_bytes
from registry.archive.tar import INDEX, LAYOUT, members
from registry.artifacts import Template
from registry.blobs import BlobStore
from registry.catalog import adapters, foundations, log
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
KIND = "application/vnd.ptdock.archive.v1"
_DOCUMENT = "application/vnd.ptdock.archive.v1+json"
_LAYER = "application/octet-stream"
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'

Progress = Callable[[int], None]


def select(session: Session, refs: Sequence[str] = (), named: Sequence[str] = ()) -> Contents:
    """What to save: adapters (`NAME` for all of its versions, or `NAME@VERSION`) and foundations, or everything.

    Every build of a version comes with its foundation, and a foundation with all of its templates. Raises NotFound.
    """
    everything = not refs and not named
    versions = _versions(session, adapters.adapters(session) if everything else refs)
    builds = [
        each for saved in versions for each in adapters.builds(session, saved.version.adapter, saved.version.version)
    ]
    wanted = foundations.digests(session) if everything else [lookup.foundation_digest(session, ref) for ref in named]
    digests = dict.fromkeys([*wanted, *(build.foundation for build in builds)])
    templates = [each for digest in digests for each in foundations.templates(session, digest)]
    numbers = {_identity(template): number for number, template in enumerate(templates)}
    made = [SavedBuild(build, numbers[_identity(lookup.template_of(session, build))]) for build in builds]
    kept = [_foundation(session, digest) for digest in digests]
    return Contents(
        registry=log.identity(session),
        bases=tuple(lookup.base(session, each) for each in dict.fromkeys(saved.foundation.base for saved in kept)),
        foundations=tuple(kept),
        templates=tuple(templates),
        versions=tuple(versions),
        builds=tuple(made),
        proofs=tuple(_proofs(session, made)),
    )


def _versions(session: Session, refs: Iterable[str]) -> list[SavedVersion]:
    found: dict[tuple[str, str], SavedVersion] = {}
    for ref in refs:
        for each in [lookup.version(session, ref)] if "@" in ref else lookup.versions(session, ref):
            found[each.adapter, each.version] = SavedVersion(each, adapters.source(session, each))
    return list(found.values())


def _identity(template: Template) -> tuple[Digest, Digest, int, int, str]:
    """What tells templates apart."""
    return template.foundation, template.structure_digest, template.context, template.graph, template.executorch


def _foundation(session: Session, digest: Digest) -> SavedFoundation:
    names = tuple(name for name, meant in foundations.names(session).items() if meant == digest)
    return SavedFoundation(lookup.foundation(session, digest), names, foundations.recipes(session, digest))


def _proofs(session: Session, builds: Sequence[SavedBuild]) -> Iterator[SavedProof]:
    for number, saved in enumerate(builds):
        for proof in adapters.proofs(session, adapters.build_id(session, saved.build)):
            yield SavedProof(number, proof)


def write(store: BlobStore, contents: Contents, path: Path, progress: Progress | None = None) -> Descriptor:
    """Write an archive and answer its digest and size; a file that was there is replaced when it is whole.

    `progress` gets the bytes that were copied. Raises InputError for a directory that is none, IntegrityError and
    NotFound for a blob that is damaged or lost, Unavailable when there is no space.
    """
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"{path} cannot be a file", hint="name a file in a directory that is there", path=str(path))
    hasher, size = hashlib.sha256(), 0
    with files.translated(path), files.unfinished(path.parent) as (fresh, file):
        for piece in _pieces(store, contents, progress):
            files.write(fresh, file, piece)
            hasher.update(piece)
            size += len(piece)
        files.sync(fresh)
        files.rename(fresh, path)
        files.sync(path.parent)
    return Descriptor(Digest(hasher.digest()), size)


def _pieces(store: BlobStore, contents: Contents, progress: Progress | None) -> Iterator[bytes]:
    """The archive's bytes: what an image layout has, then the documents, then everything else by digest."""
    blobs, document = contents.blobs(), to_bytes(contents)
    manifest = canonical.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": KIND,
            "config": _descriptor(_DOCUMENT, Descriptor.of(document)),
            "layers": [_descriptor(_LAYER, blob) for blob in blobs.values()],
        }
    )
    entry = {**_descriptor(MANIFEST, Descriptor.of(manifest)), "artifactType": KIND}
    index = canonical.dumps({"schemaVersion": 2, "manifests": [entry]})
    own = [(Descriptor.of(data), [data]) for data in (manifest, document)]
    stored = ((blob, _checked(store, blob, progress)) for blob in blobs.values())
    return members([(LAYOUT, _LAYOUT), (INDEX, index)], (*own, *stored))


def _descriptor(kind: str, blob: Descriptor) -> dict[str, object]:
    return {"mediaType": kind, **blob.to_json()}


def _checked(store: BlobStore, blob: Descriptor, progress: Progress | None) -> Iterator[bytes]:
    """A blob's bytes, hashed on their way: nothing damaged leaves the store."""
    hasher, size = hashlib.sha256(), 0
    for chunk in store.chunks(blob.digest):
        hasher.update(chunk)
        size += len(chunk)
        yield chunk
        if progress:
            progress(len(chunk))
    actual = Digest(hasher.digest())
    if (actual, size) != (blob.digest, blob.size):
        raise IntegrityError(
            f"blob {blob.digest} is damaged: its bytes have the digest {actual}",
            hint="`ptdock repair` makes again what it can; then save again",
            expected=str(blob.digest),
            actual=str(actual),
        )
