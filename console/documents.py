"""The registry's values as the JSON that scripts read with --json. Pure.

Sizes are bytes, digests `sha256:…`, times ISO 8601 in UTC. `foundation`, wherever it stands, is a digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from registry.artifacts import Build, Channel, Foundation, Line, Release, ReleaseResult, Report, Template, Version
from registry.digest import Digest

if TYPE_CHECKING:
    from registry.query import Standing
    from registry.release import Line as WireLine
    from registry.release import ReleaseDocument


def names_of(names: Mapping[str, Digest], digest: Digest) -> list[str]:
    """The names that mean this foundation, sorted; often one, perhaps none."""
    return sorted(name for name, meant in names.items() if meant == digest)


def foundation(found: Foundation, names: Sequence[str], name: str | None = None) -> dict[str, Any]:
    """One foundation; `name` is the one that it was asked for by, by default its first."""
    return {
        "name": name or (names[0] if names else None),
        "digest": str(found.file.digest),
        "size": found.file.size,
        "names": list(names),
        "base": str(found.base),
        "recipe": dict(found.recipe),
        "tensor_count": len(found.tensors),
    }


def template(made: Template, description: str) -> dict[str, Any]:
    """One template; `description` is its structure in words."""
    return {
        "digest": str(made.digest),
        "structure": str(made.structure_digest),
        "description": description,
        "size": made.program_size,
        "foundation": str(made.foundation),
        "context": made.context,
        "kv_cache_bytes": made.kv_cache_bytes,
        "executorch": made.executorch,
        "graph": made.graph,
        "hollow": made.hollow.to_json(),
        "table": made.table.to_json(),
        "backends": list(made.runtime.backends),
        "operators": list(made.runtime.operators),
    }


def build(made: Build) -> dict[str, Any]:
    """One build of a version."""
    return {
        "name": made.adapter,
        "version": made.version,
        "digest": str(made.file.digest),
        "size": made.file.size,
        "foundation": str(made.foundation),
        "template": str(made.template),
        "factors": made.factors.to_json(),
        "warnings": list(made.warnings),
        "revoked": made.revoked,
    }


def version(found: Version) -> dict[str, Any]:
    """One version of an adapter, without its builds."""
    return {
        "name": found.adapter,
        "version": found.version,
        "source": str(found.source),
        "created": found.created,
        "yanked": found.yanked,
        "lineage": dict(found.lineage),
    }


def channel(found: Channel) -> dict[str, Any]:
    """One channel as its newest manifest states it."""
    return {
        "name": found.name,
        "sequence": found.sequence,
        "salt": found.salt,
        "settings": dict(found.settings),
        "arms": [arm.to_json() for arm in found.arms],
    }


def release(made: Release, document: ReleaseDocument, standing: Standing) -> dict[str, Any]:
    """One release; what `release create --from` reads is in it. `offered` are the arms that offer it now."""
    return {
        **release_head(made, standing),
        "lines": [_line(line, wire) for line, wire in zip(made.lines, document.lines, strict=True)],
        "on_demand": sorted({e.name for line in document.lines for e in line.adapters if e.delivery == "on-demand"}),
    }


def release_head(made: Release, standing: Standing) -> dict[str, Any]:
    """One release without its builds."""
    return {
        "release": made.number,
        "digest": str(made.document.digest),
        "size": made.document.size,
        "created": made.created,
        "holes": made.holes,
        "state": standing.state,
        "offered": [{"channel": name, **arm.to_json()} for name, arm in standing.arms],
        "adapters": list(made.refs),
    }


def _line(line: Line, wire: WireLine) -> dict[str, Any]:
    return {
        "foundation": str(line.foundation),
        "requires": wire.requires.to_json(),
        "adapters": [
            {"name": name, "version": each.version, "digest": str(each.file.digest), "size": each.file.size}
            for name, each in sorted(line.builds.items())
        ],
    }


def rolled(result: ReleaseResult) -> dict[str, Any]:
    """What a verb of a rollout did; `manifest` is null for a draft, and when nothing changed."""
    return {
        "release": result.release.number,
        "channel": result.channel.name,
        "sequence": result.channel.sequence,
        "arms": [arm.to_json() for arm in result.channel.arms],
        "manifest": result.manifest.to_json() if result.manifest else None,
        "warnings": list(result.warnings),
        "hook": result.hook.to_json() if result.hook else None,
    }


def report(found: Report) -> dict[str, Any]:
    """What `verify` found."""
    return {
        "clean": found.clean,
        "damage": [
            {
                "kind": each.kind,
                "subject": each.subject,
                "message": each.message,
                "dependants": list(each.dependants),
            }
            for each in found.damage
        ],
        "notes": list(found.notes),
        "blobs": found.blobs,
        "size": found.size,
        "builds": found.builds,
    }


def builds(made: Iterable[Build]) -> list[dict[str, Any]]:
    """Several builds."""
    return [build(each) for each in made]
