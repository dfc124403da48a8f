"""What events tell of what they record: every fact that no document and no byte could give again.

Whoever records a thing and whoever verifies its row say it by the same function, so that the two can be compared field
by field. A value that is longer than its digest is told by its digest: a version's event stays small, and pins all the
same. Events of earlier versions tell fewer fields; only what is told is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry import canonical
from registry.artifacts import Base, Foundation, Template
from registry.digest import Descriptor, Digest

_LONGEST = 72  # bytes of canonical JSON: about as many as a digest takes


def pinned(value: Any) -> Any:
    """A value as an event tells it: itself, or the digest of its canonical JSON where that is shorter."""
    if not value:
        return value
    data = canonical.dumps(value)
    return value if len(data) <= _LONGEST else str(Digest.of(data))


def base(of: Base) -> dict[str, Any]:
    """A base: where it stood, its prompt and its files; its tensor table is its fingerprint."""
    return {"hint": of.hint, "prompt": str(of.prompt.digest) if of.prompt else None, "files": digests(of.files)}


def foundation(of: Foundation) -> dict[str, Any]:
    """A foundation: its base, its module table and its tensor table, whose names and shapes its file does not hold."""
    tensors = sorted(of.tensors, key=lambda tensor: (tensor.offset, tensor.key))
    return {
        "base": str(of.base),
        "modules": str(of.modules.digest),
        "tensors": pinned([tensor.to_json() for tensor in tensors]),
    }


def template(of: Template) -> dict[str, Any]:
    """A template: what it is one of, its blobs, and what its programs need of a device."""
    return {
        "foundation": str(of.foundation),
        "structure": str(of.structure_digest),
        "context": of.context,
        "graph": of.graph,
        "executorch": of.executorch,
        "hollow": str(of.hollow.digest),
        "table": str(of.table.digest),
        "program_size": of.program_size,
        "kv_cache_bytes": of.kv_cache_bytes,
        "runtime": of.runtime.to_json(),
    }


def version(lineage: Mapping[str, Any], attachments: Mapping[str, str]) -> dict[str, Any]:
    """What comes with a version beside its source; attachments as their digests."""
    return {"lineage": pinned(dict(lineage)), "attachments": pinned(dict(attachments))}


def build(
    *,
    source: Digest | str,
    foundation: Digest | str,
    template: Digest | str,
    program: Digest | str,
    factors: Digest | str,
    warnings: Sequence[str],
    parts: Mapping[str, str],
) -> dict[str, Any]:
    """A build, with its version's source. Its self-test is the newest proof's, which has an event of its own."""
    return {
        "source": str(source),
        "foundation": str(foundation),
        "template": str(template),
        "build": str(program),
        "factors": str(factors),
        "warnings": pinned(list(warnings)),
        "parts": pinned({role: digest for role, digest in parts.items() if role != "self_test"}),
    }


def token(key: str, scope: str, digest: Digest) -> dict[str, str]:
    """A token, with the digest of its text, which says no more than the row does."""
    return {"id": key, "scope": scope, "digest": str(digest)}


def digests(files: Mapping[str, Descriptor]) -> dict[str, str]:
    """Files by name, each as its digest."""
    return {name: str(file.digest) for name, file in files.items()}
