"""Rows against what must hold of them: the database's own rules once more, and those that it cannot know."""

from __future__ import annotations

from registry import canonical
from registry.catalog import content, records, retold
from registry.digest import Digest
from registry.names import check_name, check_version
from registry.verification.inspection import Inspection


def check_rows(inspection: Inspection) -> None:
    """Damaged pages, broken references and constraints; documents, bases, sources, versions and proofs."""
    for fault in content.faults(inspection.session):
        inspection.found("database", "database", fault)
    _check_documents(inspection)
    _check_sources(inspection)
    _check_versions(inspection)
    for subject, created in retold.misdated(inspection.session):
        inspection.found("row", subject, f"it is dated {created}, and was made with its first build")
    for ref, part, proven in records.self_tests(inspection.session):
        inspection.found("row", ref, f"its self-test is {part or 'none'}, its newest proof's is {proven or 'none'}")


def _check_documents(inspection: Inspection) -> None:
    """What stands under a digest has that digest."""
    for what, digest, document in records.documents(inspection.session):
        actual = Digest.of(canonical.dumps(document))
        if actual != digest:
            inspection.found("row", f"{what} {digest}", f"the document of this {what} has the digest {actual}")
    for fingerprint, tensors in records.bases(inspection.session):
        if tensors != fingerprint:
            message = f"its fingerprint is that of its tensor table, which is {tensors}"
            inspection.found("row", f"base {fingerprint}", message)


def _check_sources(inspection: Inspection) -> None:
    for digest, source in records.sources(inspection.session):
        if source.digest != digest:
            message = f"its files are those of the source {source.digest}"
            inspection.found("row", f"source {digest}", message, inspection.dependants(digest))


def _check_versions(inspection: Inspection) -> None:
    for adapter, number in records.versions(inspection.session):
        with inspection.finding("row", f"{adapter}@{number}"):
            check_name(adapter, what="adapter")
            check_version(number)
