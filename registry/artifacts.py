"""The registry's nouns as frozen values. Rows never leave `catalog`; these do.

A *base* is a checkpoint directory, known by the fingerprint of its tensors. A *recipe* turns it into a
*foundation* (one `.ptd`). A *template* is the hollow `.pte` of one foundation, one *structure*, one context
length and one ExecuTorch version. A *version* of an adapter is what was trained; a *build* is that version
through a template: one `.pte`. Every link between them is a digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.manifest import Arm

if TYPE_CHECKING:
    from registry.hooks import Outcome


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named tensor of a base: its content's digest, `dtype` in safetensors' spelling (F32, BF16, …)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: Digest


@dataclass(frozen=True, slots=True)
class Base:
    """A Hugging Face checkpoint. `files` are its config and tokenizer files by name; `hint` is where it last stood.

    `prompt` is its chat format (registry.prompt), None where it has none that a device could render.
    """

    fingerprint: Digest
    tensors: Descriptor
    files: Mapping[str, Descriptor]
    hint: str
    prompt: Descriptor | None = None


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """One entry of a foundation's tensor table.

    `key` is what programs ask for; `names` are the base's names for it (more than one where tensors are
    equal); `offset` and `size` are bytes from the start of the file; `dtype` and `shape` are the stored ones.
    """

    key: str
    names: tuple[str, ...]
    digest: Digest
    size: int
    offset: int
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As documents list it."""
        return {
            "key": self.key,
            "names": list(self.names),
            "digest": str(self.digest),
            "size": self.size,
            "offset": self.offset,
            "dtype": self.dtype,
            "shape": list(self.shape),
        }


@dataclass(frozen=True, slots=True)
class Foundation:
    """One `.ptd`, identified by its digest alone.

    `recipe` is the canonical JSON document of the export; `modules` the blob of the module table, which tells
    the gate what an adapter may touch: {"schema": 1, "architecture", "factor_dtype", "max_positions",
    "modules": {name: {"kind": "linear" | "conv1d" | "embedding" | "norm" | …, "in", "out", "bias"}},
    "tied": [[name, name], …]}.
    """

    file: Descriptor
    base: Digest
    recipe: Mapping[str, Any]
    modules: Descriptor
    tensors: tuple[ExternalTensor, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a program needs of the device's ExecuTorch: versions as (major, minor), backend and operator names."""

    minimum: tuple[int, int]
    guaranteed: tuple[int, int]
    backends: tuple[str, ...]
    operators: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As documents list it."""
        return {
            "minimum": list(self.minimum),
            "guaranteed": list(self.guaranteed),
            "backends": list(self.backends),
            "operators": list(self.operators),
        }


@dataclass(frozen=True, slots=True)
class Template:
    """A hollow `.pte` and its relocation table.

    `digest` is the SHA-256 of the hollow program itself (for the empty structure: of the base program, which
    has nothing to fill). `hollow` is the blob that holds it, zlib-compressed, except for the empty structure,
    whose blob is the plain base program. `table` is the relocation table's blob (JSON).
    """

    digest: Digest
    foundation: Digest
    structure: Mapping[str, Any]
    context: int
    graph: int
    executorch: str
    hollow: Descriptor
    table: Descriptor
    program_size: int
    runtime: Runtime
    kv_cache_bytes: int

    @property
    def structure_digest(self) -> Digest:
        """The digest of the structure's canonical document."""
        return Digest.of(canonical.dumps(self.structure))


@dataclass(frozen=True, slots=True)
class Source:
    """What was trained: the canonical list of adapter_config.json and its safetensors, and the attachments beside."""

    files: Mapping[str, Descriptor]
    attachments: Mapping[str, Descriptor]

    def to_bytes(self) -> bytes:
        """The canonical list, whose digest names the source; attachments are no part of what was trained."""
        files = {name: file.to_json() for name, file in self.files.items()}
        return canonical.dumps({"schema": 1, "files": files})

    @property
    def digest(self) -> Digest:
        """The source's name: equal files give an equal digest."""
        return Digest.of(self.to_bytes())


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable version of a named adapter. `source` is the digest of the source list; `lineage` free JSON."""

    adapter: str
    version: str
    source: Digest
    lineage: Mapping[str, Any]
    created: str
    yanked: str | None


PARTS = ("prompt", "wire", "wire_table", "self_test")


@dataclass(frozen=True, slots=True)
class Build:
    """A version through a template. `file` is the `.pte`; `factors` the folded factors in relocation order.

    `parts` are what devices may also want of it, by role (PARTS): its own chat format, the factors as trained with
    their wire table, the self-test that it was proven with.
    """

    adapter: str
    version: str
    foundation: Digest
    template: Digest
    file: Descriptor
    factors: Descriptor
    warnings: tuple[str, ...]
    revoked: str | None
    parts: Mapping[str, Descriptor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence that a build computes what was trained: `document` holds probes and figures (exporter.proof writes it).

    `self_test` is what devices replay (registry.selftest), None for what is no text model.
    """

    document: Descriptor
    self_test: Descriptor | None
    created: str


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What a publish came to.

    `outcome` is "version" (a new one), "build" (one more of a known version) or "unchanged".
    """

    version: Version
    build: Build
    outcome: str


@dataclass(frozen=True, slots=True)
class Line:
    """One foundation of a release, and on it one build per adapter, by adapter name."""

    foundation: Digest
    builds: Mapping[str, Build]


@dataclass(frozen=True, slots=True)
class Release:
    """An immutable, numbered release: `lines` in order of preference. `holes`: a line may lack an adapter."""

    number: int
    document: Descriptor
    lines: tuple[Line, ...]
    created: str
    holes: bool

    @property
    def refs(self) -> tuple[str, ...]:
        """The versions that it holds, as NAME@VERSION, sorted."""
        return tuple(sorted({f"{name}@{build.version}" for line in self.lines for name, build in line.builds.items()}))


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as its newest manifest states it; `sequence` 0 before the first, when everyone keeps what they have."""

    name: str
    salt: str
    sequence: int
    settings: Mapping[str, Any]
    arms: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """A release, and the channel that offers it since `manifest` (None for a draft, and when nothing changed).

    `warnings` say what is doubtful in it; `hook` how the channel's hook ended, None without one.
    """

    release: Release
    channel: Channel
    manifest: Descriptor | None
    warnings: tuple[str, ...] = ()
    hook: Outcome | None = None

    def after(self, hook: Outcome | None) -> ReleaseResult:
        """The same, after the hook has run."""
        return replace(self, hook=hook)


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as recorded: `subject` (a digest or name), what is wrong, and what depends on it."""

    kind: str
    subject: str
    message: str
    dependants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found: damage, harmless notes (orphans, stale temp files), and what it looked at.

    `blobs` and `size` (bytes) count what was checked; `builds` the builds whose links were followed.
    """

    damage: tuple[Damage, ...]
    notes: tuple[str, ...]
    blobs: int
    size: int
    builds: int

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage
