"""The façade: everything that the command line, the server and the exporter ask of a registry.

    registry = Registry.init(home)                      # or Registry.open(home)
    file = registry.blobs.put_file(ptd, move=True)      # content first …
    registry.add_base(base)
    registry.add_foundation(foundation, "smollm2")      # … rows in one transaction …
    registry.add_template(template)
    registry.publish("pirate", None, source, template=template, file=pte, factors=factors)
    registry.create_channel("stable")
    registry.create_release("stable", ["pirate@1.0.0"])  # … and the channel's pointer last

A home holds `registry.db` (SQLite), an OCI image layout (`oci-layout`, `blobs/sha256/<hex>`), `ingest/` (unfinished
writes) and `site/` (what channels offer, for any web server). Every change is one transaction with one audit event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from registry.artifacts import (
    Base,
    Build,
    Channel,
    Foundation,
    PublishResult,
    Release,
    ReleaseResult,
    Report,
    Source,
    Template,
    Version,
)
from registry.digest import Descriptor, Digest


class Registry:
    """One registry: a database of links and a store of blobs.

    `blobs` is the store: `put_bytes(data)`, `put_file(path, move=False, progress=None)` answer a Descriptor;
    `path(digest)` a read-only local file; `read(digest)` verified bytes; `size(digest)` None when absent.
    """

    @classmethod
    def init(cls, home: Path, *, actor: str | None = None) -> Registry:
        """Make an empty registry in `home` (made when absent), or bring an existing one to the newest schema.

        `actor` is who the audit log names; by default the operating system's user. Raises Unavailable
        when `home` cannot be written.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, home: Path, *, actor: str | None = None) -> Registry:
        """Open the registry in `home`.

        Raises NotFound when there is none (hint: `ptdock init`), Conflict when its schema is not this program's
        (hint: `ptdock db upgrade`).
        """
        raise NotImplementedError

    @property
    def home(self) -> Path:
        """The registry's directory."""
        raise NotImplementedError

    @property
    def site(self) -> Path:
        """The static tree that devices read: only what channels offer."""
        raise NotImplementedError

    @property
    def uuid(self) -> str:
        """The registry's identity, in every manifest."""
        raise NotImplementedError

    def export_lock(self, waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Hold the store's one export lock; `waiting` is called once when another process holds it."""
        raise NotImplementedError

    def add_base(self, base: Base, *, replace: bool = False) -> Base:
        """Record a base; its blobs (tensor table, files) are in the store already. Answers it as recorded.

        Known: a no-op, except that a new hint is kept. Other files (config, tokenizer) under a known fingerprint
        raise Conflict unless `replace`. Raises NotFound for a blob that is not in the store.
        """
        raise NotImplementedError

    def base(self, fingerprint: Digest) -> Base:
        """The base with this fingerprint. Raises NotFound."""
        raise NotImplementedError

    def bases(self) -> tuple[Base, ...]:
        """All bases, oldest first."""
        raise NotImplementedError

    def add_foundation(self, foundation: Foundation, name: str, *, replace_name: bool = False) -> Foundation:
        """Record a foundation and name it; its base and blobs are recorded already. Answers it as recorded.

        The same bytes under the same name: a no-op (another recipe is remembered too). Raises Conflict when
        `name` means other bytes, unless `replace_name`; builds stay linked to the old ones by digest.
        """
        raise NotImplementedError

    def foundation(self, ref: str | Digest) -> Foundation:
        """The foundation with this name or digest (`sha256:…`). Raises NotFound, listing the known names."""
        raise NotImplementedError

    def find_foundation(self, base: Digest, recipe: Mapping[str, Any]) -> Foundation | None:
        """The foundation that this recipe made of this base, when it is recorded."""
        raise NotImplementedError

    def foundations(self) -> tuple[Foundation, ...]:
        """All foundations, oldest first."""
        raise NotImplementedError

    def foundation_names(self) -> Mapping[str, Digest]:
        """What every name means, sorted by name."""
        raise NotImplementedError

    def remove_foundation(self, ref: str | Digest) -> Foundation:
        """Forget a foundation that no build and no release uses, with its names and templates.

        Raises Conflict with `dependants` otherwise. Its blobs stay until `gc`.
        """
        raise NotImplementedError

    def add_template(self, template: Template) -> Template:
        """Record a template; its blobs are in the store, its foundation is recorded. The same again is a no-op.

        Raises Conflict when the same foundation, structure, context, graph and ExecuTorch version already gave
        other bytes, for then an export was not reproducible.
        """
        raise NotImplementedError

    def find_template(
        self, foundation: Digest, structure: Mapping[str, Any], context: int, graph: int, executorch: str
    ) -> Template | None:
        """The template of this foundation, structure document, context length, graph and ExecuTorch version."""
        raise NotImplementedError

    def templates(self, foundation: Digest) -> tuple[Template, ...]:
        """A foundation's templates, oldest first."""
        raise NotImplementedError

    def template_of(self, build: Build) -> Template:
        """The template that a build went through. Raises NotFound."""
        raise NotImplementedError

    def publish(
        self,
        adapter: str,
        version: str | None,
        source: Source,
        *,
        template: Template,
        file: Descriptor,
        factors: Descriptor,
        lineage: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> PublishResult:
        """Record a build of `adapter` through `template`; all blobs are in the store already.

        `version` None: the next patch after the highest (1.0.0 first), except that the latest one's own source
        is no new version. Same name, version and source (or an equal `.pte`) on the same foundation: "unchanged".
        The same version through another template, so on another foundation too: "build". Raises Conflict when
        `adapter@version` was made from another source ("immutable"), NotFound for a template or blob that is not
        recorded, InputError for a bad name or version.
        """
        raise NotImplementedError

    def find_version(self, adapter: str, source: Source) -> Version | None:
        """The newest version of `adapter` that has exactly these source files, so that a publisher can stop early."""
        raise NotImplementedError

    def source(self, version: Version) -> Source:
        """The source files and attachments of a version. Raises NotFound."""
        raise NotImplementedError

    def adapters(self) -> tuple[str, ...]:
        """The names of all adapters, sorted."""
        raise NotImplementedError

    def versions(self, adapter: str) -> tuple[Version, ...]:
        """An adapter's versions in order of precedence (SemVer). Raises NotFound, listing the known adapters."""
        raise NotImplementedError

    def version(self, ref: str) -> Version:
        """`NAME@VERSION`, or the highest version of `NAME` that is not yanked. Raises NotFound."""
        raise NotImplementedError

    def builds(self, ref: str) -> tuple[Build, ...]:
        """All builds of a version, oldest first. Raises NotFound."""
        raise NotImplementedError

    def build(self, ref: str, foundation: str | Digest | None = None) -> Build:
        """The newest build of a version on a foundation that is not revoked, on any when None. Raises NotFound."""
        raise NotImplementedError

    def yank(self, ref: str, reason: str) -> Version:
        """No new release may take this version; live ones keep it. Raises NotFound."""
        raise NotImplementedError

    def unyank(self, ref: str) -> Version:
        """Undo `yank`. Raises NotFound."""
        raise NotImplementedError

    def revoke(self, ref: str, reason: str, foundation: str | Digest | None = None) -> tuple[Build, ...]:
        """Revoke a version's builds (on one foundation, or all); every channel that reaches one gets a new manifest."""
        raise NotImplementedError

    def create_channel(self, name: str, **settings: Any) -> Channel:
        """Make a channel. Settings: `poll_seconds` (14400), `lifetime_seconds` of a manifest (2592000).

        Raises Conflict when it exists. A deleted channel's name may be used again: its sequence goes on.
        """
        raise NotImplementedError

    def delete_channel(self, name: str) -> None:
        """Withdraw a channel from the site; its manifests and its sequence are kept. Raises NotFound."""
        raise NotImplementedError

    def channel(self, name: str) -> Channel:
        """A channel's state. Raises NotFound, listing the known ones."""
        raise NotImplementedError

    def channels(self) -> tuple[Channel, ...]:
        """All channels that are not deleted, by name."""
        raise NotImplementedError

    def create_release(
        self,
        channel: str,
        refs: Sequence[str],
        *,
        lines: Sequence[str | Digest] | None = None,
        share_bp: int = 10000,
        allow_holes: bool = False,
        draft: bool = False,
    ) -> ReleaseResult:
        """Make a release of adapter versions (`NAME@VERSION`) and offer it to a share of the channel's devices.

        `lines`: foundations (names or digests) in order of preference; by default one line per foundation on which
        every version has a build, newest foundation first. Raises Conflict with the matrix `holes` when a line
        lacks an adapter and `allow_holes` is not given, or for a yanked version; NotFound; InputError.
        """
        raise NotImplementedError

    def release(self, number: int) -> Release:
        """A release by its number. Raises NotFound."""
        raise NotImplementedError

    def releases(self) -> tuple[Release, ...]:
        """All releases, oldest first."""
        raise NotImplementedError

    def manifest(self, channel: str, sequence: int | None = None) -> bytes:
        """The bytes of a channel's newest manifest, or of an earlier one. Raises NotFound."""
        raise NotImplementedError

    def refresh_site(self) -> None:
        """Write the static tree again from what the channels offer; idempotent. Every channel change calls it."""
        raise NotImplementedError

    def verify(self, *, fast: bool = False, progress: Callable[[int], None] | None = None) -> Report:
        """Check blobs against digests, rows against blobs, links against bytes, and the audit chain.

        `fast` checks sizes instead of hashing. `progress` gets the number of bytes hashed. Never raises for damage.
        """
        raise NotImplementedError

    def events(self, limit: int | None = None) -> tuple[Mapping[str, Any], ...]:
        """The audit log, newest first: at, actor, action, subject, before, after, prev, digest."""
        raise NotImplementedError
