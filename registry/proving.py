"""What is recorded of proofs, the evidence that a build computes what was trained; the exporter makes them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from registry.artifacts import Build, Line, Proof
from registry.blobs import BlobStore
from registry.catalog import adapters, content
from registry.catalog.log import Change
from registry.digest import Descriptor
from registry.errors import Conflict, NotFound


def add_proof(
    change: Change, store: BlobStore, build: Build, document: Descriptor, self_test: Descriptor | None
) -> Proof:
    """Record a proof, or answer the recorded one with the same document. Raises NotFound for an unknown build."""
    row = adapters.find_build(change.session, build)
    if row is None:
        raise NotFound(f"{_ref(build)} has no build {build.file.digest}", hint="publish it first")
    known = [proof for proof in adapters.proofs(change.session, row) if proof.document == document]
    if known:
        return known[-1]
    content.require(change, store, [document, *([self_test] if self_test else [])])
    adapters.insert_proof(change, row, document.digest, self_test.digest if self_test else None)
    replayed = {"self_test": str(self_test.digest)} if self_test else {}
    after = {"build": str(build.file.digest), "proof": str(document.digest), **replayed}
    change.record("adapter.prove", _ref(build), after=after)
    return Proof(document, self_test, change.at)


def proof(session: Session, build: Build) -> Proof | None:
    """The newest proof of a build, None without any."""
    row = adapters.find_build(session, build)
    found = adapters.proofs(session, row) if row is not None else ()
    return found[-1] if found else None


def require_proofs(session: Session, lines: Iterable[Line]) -> None:
    """Raise Conflict unless every build of these lines is proven; `values["unproven"]` names those that are not."""
    unproven = [
        {"ref": _ref(build), "foundation": str(line.foundation), "digest": str(build.file.digest)}
        for line in lines
        for build in line.builds.values()
        if proof(session, build) is None
    ]
    if unproven:
        foundation = unproven[0]["foundation"]
        there = [each["ref"] for each in unproven if each["foundation"] == foundation]
        raise Conflict(
            f"this channel takes proven builds only; not proven: {', '.join(each['ref'] for each in unproven)}",
            hint=f"ptdock adapter prove {' '.join(there)} --foundation {foundation}",
            unproven=unproven,
        )


def _ref(build: Build) -> str:
    return f"{build.adapter}@{build.version}"
