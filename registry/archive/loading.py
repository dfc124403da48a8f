"""Taking an archive in: like any other input, it is believed in nothing.

Names and sizes are checked before a byte is kept, every blob is hashed into the store, foundations are read again from
their bytes, templates are filled and looked up in them, programs made again from their factors. Only then are the rows
written, all in one transaction: an archive is taken in whole or not at all, and taking it in twice changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.orm import Session

from registry import canonical, files, founding, proving, wire, withdrawing
from registry.archive.contents import Contents, SavedBuild, SavedFoundation, SavedVersion
from registry.archive.document import MAX_BYTES, from_bytes
from registry.archive.saving import KIND
from registry.archive.tar import INDEX, LAYOUT, Members
from registry.artifacts import Base, Build, Proof, PublishResult, Template, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, content, foundations
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.documents import Fields, descriptor
from registry.errors import FormatError, IntegrityError
from registry.formats import mapped
from registry.formats.layout import Layout
from registry.formats.ptd import read_ptd
from registry.links import foundation_tensors
from registry.plates import Plate, check_plate, open_plate
from registry.publishing import Publication, publish

HINT = "an archive"  # where a base's checkpoint is, until somebody says
_MAX_MANIFEST = 256 << 20

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an archive brought: how many of each were new here, by noun; `notes` say what was left as it is here.

    `channels` have a new manifest: they reach a program that comes revoked.
    """

    contents: Contents
    added: Mapping[str, int]
    notes: tuple[str, ...]
    channels: tuple[str, ...]


def read_contents(members: Members) -> Contents:
    """What an archive holds; every blob that it names is in it. Raises FormatError."""
    for name in (LAYOUT, INDEX):
        if name not in members.documents:
            raise FormatError(f"archive: {name} is missing", hint="it is no archive of ptdock's, or it was cut")
    entries = list(Fields(canonical.loads(members.documents[INDEX], what=INDEX), INDEX).objects("manifests"))
    ours = [each for each in entries if "artifactType" in each and each.text("artifactType") == KIND]
    if len(ours) != 1:
        raise FormatError(f"archive: {len(ours)} of its manifests are ptdock's, expected one", actual=len(ours))
    manifest = canonical.loads(members.read(descriptor(ours[0]), _MAX_MANIFEST), what="manifest")
    contents = from_bytes(members.read(Fields(manifest, "manifest").descriptor("config"), MAX_BYTES))
    for blob in contents.blobs().values():
        if blob not in members:
            raise FormatError(
                f"archive: {blob.digest} of {blob.size} bytes is missing", hint="it was cut: copy it again"
            )
    return contents


def store_blobs(store: BlobStore, members: Members, contents: Contents, home: Path, progress: Progress | None) -> None:
    """Keep every blob that the store lacks. Raises FormatError for bytes that have another digest, Unavailable."""
    with tempfile.TemporaryDirectory(dir=home, prefix="work-") as work:
        for blob in contents.blobs().values():
            if store.size(blob.digest) != blob.size:
                _store(store, members, blob, Path(work), progress)


def _store(store: BlobStore, members: Members, blob: Descriptor, work: Path, progress: Progress | None) -> None:
    with files.translated(work), files.unfinished(work) as (fresh, file):
        for chunk in members.chunks(blob.digest):
            files.write(fresh, file, chunk)
            if progress:
                progress(len(chunk))
        try:
            store.put_file(fresh, expected=blob.digest, move=True)
        except IntegrityError as error:
            raise FormatError(f"archive: {error.message}", hint="it was changed or damaged: copy it again") from None


def check(session: Session, store: BlobStore, contents: Contents) -> None:
    """Hold everything that is new here against its bytes. Raises FormatError and IntegrityError."""
    by_digest = {each.foundation.file.digest: each for each in contents.foundations}
    for each in contents.foundations:
        if not foundations.exists(session, each.foundation.file.digest):
            _check_foundation(store, each)
    plates: dict[int, Plate] = {}
    for template in contents.templates:
        if foundations.template_id(session, template) is None:
            known = foundations.foundation(session, template.foundation)
            check_plate(_plate(store, template), (known or by_digest[template.foundation].foundation).tensors)
    for saved in contents.builds:
        if adapters.find_build(session, saved.build) is None:
            plate = plates.pop(saved.template, None) or _plate(store, contents.templates[saved.template])
            plates = {saved.template: plate}  # builds of one template stand beside each other more often than not
            _check_build(store, saved, plate)


def _plate(store: BlobStore, template: Template) -> Plate:
    return open_plate(template, store.read)


def _check_foundation(store: BlobStore, saved: SavedFoundation) -> None:
    """Read a foundation again: every key certifies its bytes, and the table is what the bytes say."""
    found = saved.foundation
    data = mapped(store.path(found.file.digest))
    names = {tensor.key: tensor.names for tensor in found.tensors}
    layouts = {t.key: Layout(t.dtype, t.shape, tuple(range(len(t.shape)))) for t in found.tensors}
    if foundation_tensors(read_ptd(data), data, names, layouts) != found.tensors:
        raise IntegrityError(f"archive: the table of foundation {found.file.digest} is not that of its bytes")


def _check_build(store: BlobStore, saved: SavedBuild, plate: Plate) -> None:
    """Make a program again from its factors, and its factors from what devices fetch."""
    build = saved.build
    ref = f"{build.adapter}@{build.version}"
    factors = store.read(build.factors.digest)
    if Digest.of(plate.fill(factors)) != build.file.digest:
        raise IntegrityError(f"archive: the program of {ref} is not its template with its factors")
    if "wire" in build.parts:
        table, data = (store.read(build.parts[role].digest) for role in ("wire_table", "wire"))
        if wire.expand(table, data)[1] != factors:
            raise IntegrityError(f"archive: what devices would fetch of {ref} is not its factors")


def record(change: Change, store: BlobStore, contents: Contents) -> Loaded:
    """Write the rows of everything that is new here, in one transaction. Raises Conflict for what contradicts."""
    recorder = _Recorder(change, store, contents)
    recorder.run()
    return Loaded(contents, recorder.added, tuple(recorder.notes), tuple(sorted(recorder.channels)))


class _Recorder:
    """One load: counts what was new, notes what was left as it is, and which channels have a new manifest."""

    def __init__(self, change: Change, store: BlobStore, contents: Contents) -> None:
        self._change = change
        self._store = store
        self._contents = contents
        self.added = dict.fromkeys(("bases", "foundations", "templates", "versions", "builds", "proofs"), 0)
        self.notes: list[str] = []
        self.channels: set[str] = set()

    def run(self) -> None:
        """Record everything, in the order of what refers to what."""
        for base in self._contents.bases:
            self._base(base)
        for each in self._contents.foundations:
            self._foundation(each)
        for template in self._contents.templates:
            self._template(template)
        versions = {(each.version.adapter, each.version.version): each for each in self._contents.versions}
        builds = [
            self._build(saved, versions[saved.build.adapter, saved.build.version]) for saved in self._contents.builds
        ]
        for proven in self._contents.proofs:
            self._proof(builds[proven.build], proven.proof)

    def _base(self, base: Base) -> None:
        known = foundations.base(self._change.session, base.fingerprint)
        if known is None:
            prompt = [base.prompt] if base.prompt else []
            content.require(self._change, self._store, [base.tensors, *base.files.values(), *prompt])
            founding.add_base(self._change, replace(base, hint=HINT), replace=False)
            self.added["bases"] += 1
        elif dict(known.files) != dict(base.files):
            self.notes.append(f"base {base.fingerprint} has other files here: they stay")

    def _foundation(self, saved: SavedFoundation) -> None:
        session, new = self._change.session, saved.foundation
        self.added["foundations"] += not foundations.exists(session, new.file.digest)
        content.require(self._change, self._store, [new.file, new.modules])
        for recipe in saved.recipes:
            founding.record_foundation(self._change, replace(new, recipe=recipe))
        for name in saved.names:
            meant = foundations.names(session).get(name)
            if meant is None:
                founding.name_foundation(self._change, new.file.digest, name, replace_name=False)
            elif meant != new.file.digest:
                self.notes.append(f"{name} means another foundation here: {new.file.digest} goes without that name")

    def _template(self, template: Template) -> None:
        self.added["templates"] += foundations.template_id(self._change.session, template) is None
        content.require(self._change, self._store, [template.hollow, template.table])
        founding.add_template(self._change, template)

    def _build(self, saved: SavedBuild, of: SavedVersion) -> Build:
        new = Publication(
            adapter=of.version.adapter,
            version=of.version.version,
            source=of.source,
            template=self._contents.templates[saved.template],
            file=saved.build.file,
            factors=saved.build.factors,
            lineage=of.version.lineage,
            warnings=saved.build.warnings,
            parts={
                role: part for role, part in saved.build.parts.items() if role != "self_test"
            },  # its proof brings it
        )
        new.check()
        result = publish(self._change, self._store, new, even_revoked=True)
        self.added["versions"] += result.outcome == "version"
        self.added["builds"] += result.outcome != "unchanged"
        self._withdraw(result, saved.build, of.version)
        return result.build

    def _withdraw(self, result: PublishResult, saved: Build, version: Version) -> None:
        """What is withdrawn there comes withdrawn; of what was here before, a difference is only told."""
        ref = f"{version.adapter}@{version.version}"
        if version.yanked != result.version.yanked:
            if result.outcome == "version":
                withdrawing.yank(self._change, ref, version.yanked)
            elif version.yanked is not None:
                self.notes.append(f"{ref} is yanked in the archive ({version.yanked}), not here")
        if saved.revoked is not None and result.build.revoked is None:
            if result.outcome == "unchanged":
                self.notes.append(f"{ref} is revoked in the archive ({saved.revoked}), not here: revoke it?")
            else:
                self._revoke(ref, saved.file.digest, saved.revoked)

    def _revoke(self, ref: str, program: Digest, reason: str) -> None:
        """Devices know a program by its digest alone, so it is revoked under the names that it has here too."""
        revoked, issued = withdrawing.revoke_programs(self._change, self._store, ref, [program], reason)
        for other in sorted({f"{build.adapter}@{build.version}" for build in revoked} - {ref}):
            self.notes.append(f"{other} is the same program as {ref}, which comes revoked ({reason}): so is it now")
        self.notes.extend(f"channel {name} has a new manifest, which revokes {ref}" for name in issued)
        self.channels.update(issued)

    def _proof(self, build: Build, proof: Proof) -> None:
        row = adapters.build_id(self._change.session, build)
        if proof.document not in [known.document for known in adapters.proofs(self._change.session, row)]:
            proving.add_proof(self._change, self._store, build, proof.document, proof.self_test)
            self.added["proofs"] += 1
