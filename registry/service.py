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
writes) and `site/` (what channels offer, for any web server). The environment may put the database elsewhere
(PTDOCK_DATABASE_URL) and the blobs into a bucket (PTDOCK_BLOBS). Every change is one transaction with one audit event.
"""

from __future__ import annotations

import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry import canonical, files, founding, lookup, proving, releasing, verification, withdrawing
from registry.access import Tokens
from registry.artifacts import (
    Base,
    Build,
    Channel,
    Foundation,
    Proof,
    PublishResult,
    Release,
    ReleaseResult,
    Report,
    Source,
    Template,
    Version,
)
from registry.audit import Event
from registry.blobs import BlobStore
from registry.catalog import adapters, channels, content, foundations, log
from registry.catalog.log import Change
from registry.composing import Contents, LineSpec
from registry.database import SCHEMA, Database
from registry.digest import Descriptor, Digest
from registry.engines import database_url
from registry.errors import InputError, PtdockError, Unavailable
from registry.hooks import Hooks
from registry.keeper import Keeper
from registry.names import check_name
from registry.published import newest_root
from registry.publishing import Publication, publish
from registry.rolling import Rollout
from registry.settings import checked as check_settings
from registry.site import Changes
from registry.stores import make_store, open_store

if TYPE_CHECKING:
    from registry.signed_site import SignedSite


class Registry:
    """One registry: a database of links and a store of blobs.

    `blobs` is the store: `put_bytes(data)`, `put_file(path, move=False, progress=None)` answer a Descriptor;
    `path(digest)` a read-only local file; `read(digest)` verified bytes; `size(digest)` None when absent. `home` is
    the registry's directory; `database` is for its own modules. `fresh` is True when `init` has just made it.
    """

    def __init__(
        self, home: Path, database: Database, blobs: BlobStore, *, actor: str, clock: Callable[[], float]
    ) -> None:
        self.home = home
        self.database = database
        self.blobs = blobs
        self.fresh = False
        self._actor = actor
        self._clock = clock

    @classmethod
    def init(
        cls,
        home: Path,
        *,
        environment: Mapping[str, str] = os.environ,
        actor: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Registry:
        """Make an empty registry in `home` (made when absent), or bring an existing one to the newest schema.

        A registry without keys gets development keys, which `ptdock keys init` replaces.

        `environment` says where database and blobs are, when they are not in `home` (registry.engines, .stores).
        `actor` is who the audit log names; by default the operating system's user. Raises Unavailable when `home`
        cannot be written, or the database or the bucket not reached; Conflict for another registry's bucket.
        """
        try:
            with files.translated(home):
                files.make_directory(home)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"{home} is not a directory", hint="choose another home", path=str(home)) from error
        database = Database(database_url(home, environment))
        if database.schema() != SCHEMA:
            database.upgrade()
        actor = actor or _user()
        with database.write() as session:
            fresh = log.found(Change(session, clock(), actor), str(uuid.uuid4()))
            identity = log.identity(session)
        registry = cls(home, database, make_store(home, environment, identity), actor=actor, clock=clock)
        registry.fresh = fresh
        registry.signed_site().create_development()
        return registry

    @classmethod
    def open(
        cls,
        home: Path,
        *,
        environment: Mapping[str, str] = os.environ,
        actor: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Registry:
        """Open the registry in `home`; `environment` as for `init`.

        Raises NotFound when there is none (hint: `ptdock init`), Conflict when its schema is not this program's
        (hint: `ptdock db upgrade`) or its bucket another registry's.
        """
        database = Database.found(home, environment)
        try:
            database.check_schema()
            with database.read() as session:
                store = open_store(home, environment, log.identity(session))
        except PtdockError:
            database.close()
            raise
        return cls(home, database, store, actor=actor or _user(), clock=clock)

    @property
    def site(self) -> Path:
        """The static tree that devices read: only what channels offer."""
        return self.home / "site"

    @property
    def uuid(self) -> str:
        """The registry's identity, in every manifest."""
        with self.database.read() as session:
            return log.identity(session)

    def export_lock(self, waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Hold the store's one export lock; `waiting` is called once when another process holds it."""
        return files.locked(self.home / "export.lock", waiting)

    def add_base(self, base: Base, *, replace: bool = False) -> Base:
        """Record a base; its blobs (tensor table, files) are in the store already. Answers it as recorded.

        Known: a no-op, except that a new hint is kept. Other files (config, tokenizer) under a known fingerprint
        raise Conflict unless `replace`. Raises NotFound for a blob that is not in the store.
        """
        with self._change() as change:
            prompt = [base.prompt] if base.prompt else []
            content.require(change, self.blobs, [base.tensors, *base.files.values(), *prompt])
            founding.add_base(change, base, replace=replace)
            return lookup.base(change.session, base.fingerprint)

    def base(self, fingerprint: Digest) -> Base:
        """The base with this fingerprint. Raises NotFound."""
        with self.database.read() as session:
            return lookup.base(session, fingerprint)

    def bases(self) -> tuple[Base, ...]:
        """All bases, oldest first."""
        with self.database.read() as session:
            return foundations.bases(session)

    def add_foundation(self, foundation: Foundation, name: str, *, replace_name: bool = False) -> Foundation:
        """Record a foundation and name it; its base and blobs are recorded already. Answers it as recorded.

        The same bytes under the same name: a no-op (another recipe is remembered too). Raises Conflict when
        `name` means other bytes, unless `replace_name`; builds stay linked to the old ones by digest.
        """
        check_name(name, what="foundation")
        with self._change() as change:
            content.require(change, self.blobs, [foundation.file, foundation.modules])
            founding.add_foundation(change, foundation, name, replace_name=replace_name)
            return lookup.foundation(change.session, foundation.file.digest)

    def foundation(self, ref: str | Digest) -> Foundation:
        """The foundation with this name or digest (`sha256:…`). Raises NotFound, listing the known names."""
        with self.database.read() as session:
            return lookup.foundation(session, ref)

    def find_foundation(self, base: Digest, recipe: Mapping[str, Any]) -> Foundation | None:
        """The foundation that this recipe made of this base, when it is recorded."""
        with self.database.read() as session:
            digest = foundations.made_from(session, base, recipe)
            return lookup.foundation(session, digest) if digest else None

    def foundations(self) -> tuple[Foundation, ...]:
        """All foundations, oldest first."""
        with self.database.read() as session:
            return tuple(lookup.foundation(session, digest) for digest in foundations.digests(session))

    def foundation_names(self) -> Mapping[str, Digest]:
        """What every name means, sorted by name."""
        with self.database.read() as session:
            return foundations.names(session)

    def remove_foundation(self, ref: str | Digest) -> Foundation:
        """Forget a foundation that no build and no release uses, with its names and templates.

        Raises Conflict with `dependants` otherwise. Its blobs stay until `gc`.
        """
        with self._change() as change:
            return founding.remove_foundation(change, ref)

    def add_template(self, template: Template) -> Template:
        """Record a template; its blobs are in the store, its foundation is recorded. The same again is a no-op.

        Raises Conflict when the same foundation, structure, context, graph and ExecuTorch version already gave
        other bytes, for then an export was not reproducible.
        """
        with self._change() as change:
            content.require(change, self.blobs, [template.hollow, template.table])
            return founding.add_template(change, template)

    def find_template(
        self, foundation: Digest, structure: Mapping[str, Any], context: int, graph: int, executorch: str
    ) -> Template | None:
        """The template of this foundation, structure document, context length, graph and ExecuTorch version."""
        key = (foundation, Digest.of(canonical.dumps(structure)), context, graph, executorch)
        with self.database.read() as session:
            return foundations.find_template(session, *key)

    def templates(self, foundation: Digest) -> tuple[Template, ...]:
        """A foundation's templates, oldest first."""
        with self.database.read() as session:
            return foundations.templates(session, foundation)

    def template_of(self, build: Build) -> Template:
        """The template that a build went through. Raises NotFound."""
        with self.database.read() as session:
            return lookup.template_of(session, build)

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
        parts: Mapping[str, Descriptor] | None = None,
    ) -> PublishResult:
        """Record a build of `adapter` through `template`; all blobs are in the store already, `parts` too.

        `version` None: the next patch after the highest (1.0.0 first), except that the latest one's own source
        is no new version. Same name, version and source (or an equal `.pte`) on the same foundation: "unchanged".
        The same version through another template, so on another foundation too: "build". Raises Conflict when
        `adapter@version` was made from another source ("immutable"), NotFound for a template or blob that is not
        recorded, InputError for a bad name or version.
        """
        new = Publication(adapter, version, source, template, file, factors, lineage or {}, warnings, parts or {})
        new.check()
        self.blobs.put_bytes(source.to_bytes())
        with self._change() as change:
            return publish(change, self.blobs, new)

    def find_version(self, adapter: str, source: Source) -> Version | None:
        """The newest version of `adapter` that has exactly these source files, so that a publisher can stop early."""
        with self.database.read() as session:
            same = [found for found in adapters.versions(session, adapter) if found.source == source.digest]
            return same[-1] if same else None

    def source(self, version: Version) -> Source:
        """The source files and attachments of a version. Raises NotFound."""
        with self.database.read() as session:
            return adapters.source(session, version)

    def adapters(self) -> tuple[str, ...]:
        """The names of all adapters, sorted."""
        with self.database.read() as session:
            return adapters.adapters(session)

    def versions(self, adapter: str) -> tuple[Version, ...]:
        """An adapter's versions in order of precedence (SemVer). Raises NotFound, listing the known adapters."""
        with self.database.read() as session:
            return lookup.versions(session, adapter)

    def version(self, ref: str) -> Version:
        """`NAME@VERSION`, or the highest version of `NAME` that is not yanked. Raises NotFound."""
        with self.database.read() as session:
            return lookup.version(session, ref)

    def builds(self, ref: str) -> tuple[Build, ...]:
        """All builds of a version, oldest first. Raises NotFound."""
        with self.database.read() as session:
            found = lookup.version(session, ref)
            return adapters.builds(session, found.adapter, found.version)

    def build(self, ref: str, foundation: str | Digest | None = None) -> Build:
        """The newest build of a version on a foundation that is not revoked, on any when None. Raises NotFound."""
        with self.database.read() as session:
            return lookup.build(session, ref, foundation)

    def add_proof(self, build: Build, document: Descriptor, self_test: Descriptor | None) -> Proof:
        """Record a proof of a recorded build; its blobs are in the store already. The same again is a no-op.

        Releases made from now on carry its self-test, None for what is no text model. Raises NotFound for a build or
        blob that is not recorded.
        """
        with self._change() as change:
            return proving.add_proof(change, self.blobs, build, document, self_test)

    def proof(self, build: Build) -> Proof | None:
        """The newest proof of a build, None for an unproven one."""
        with self.database.read() as session:
            return proving.proof(session, build)

    def yank(self, ref: str, reason: str) -> Version:
        """No new release may take this version; live ones keep it. Raises NotFound."""
        with self._change() as change:
            return withdrawing.yank(change, ref, reason)

    def unyank(self, ref: str) -> Version:
        """Undo `yank`. Raises NotFound."""
        with self._change() as change:
            return withdrawing.yank(change, ref, None)

    def revoke(self, ref: str, reason: str, foundation: str | Digest | None = None) -> tuple[Build, ...]:
        """Revoke a version's builds (on one foundation, or all); every channel that reaches one gets a new manifest.

        Other builds of the same program are revoked with them: devices know it by its digest. Answers all of them.
        """
        with self._change() as change:
            revoked = withdrawing.revoke(change, self.blobs, ref, reason, foundation)
        self._follow(f"{ref} is revoked")
        return revoked

    def create_channel(self, name: str, **settings: Any) -> Channel:
        """Make a channel; registry.settings says what can be set.

        Raises Conflict when it exists. A deleted channel's name may be used again: its sequence goes on.
        """
        checked = check_settings(settings)
        with self._change() as change:
            return releasing.create_channel(change, name, checked)

    def delete_channel(self, name: str) -> None:
        """Withdraw a channel from the site; its manifests and sequence are kept, its hook is not. Raises NotFound."""
        with self._change() as change:
            releasing.delete_channel(change, self.blobs, name)
        Hooks(self.home).forget(name)
        self._follow(f"channel {name!r} is deleted")

    def channel(self, name: str) -> Channel:
        """A channel's state. Raises NotFound, listing the known ones."""
        with self.database.read() as session:
            return lookup.channel(session, name)

    def channels(self) -> tuple[Channel, ...]:
        """All channels that are not deleted, by name."""
        with self.database.read() as session:
            return channels.channels(session)

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
        lacks an adapter and `allow_holes` is not given, or for a yanked version; NotFound; InputError. `rollout` has
        more ways to make one.
        """
        specs = None if lines is None else [LineSpec(each) for each in lines]
        contents = Contents(refs, specs, allow_holes=allow_holes)
        return self.rollout(channel).create(contents, share_bp, draft=draft)

    def rollout(self, channel: str) -> Rollout:
        """The verbs that move a channel, from `create` to `rollback`. Raises InputError for an impossible name."""
        return Rollout(channel, self.home, self.database, self.blobs, change=self._change, follow=self._follow)

    def release(self, number: int) -> Release:
        """A release by its number. Raises NotFound."""
        with self.database.read() as session:
            return lookup.release(session, number)

    def releases(self) -> tuple[Release, ...]:
        """All releases, oldest first."""
        with self.database.read() as session:
            return channels.releases(session)

    def ever_offered(self) -> Mapping[int, tuple[str, ...]]:
        """The channels that ever offered each release, by its number; a draft is not in it."""
        with self.database.read() as session:
            return channels.ever_offered(session)

    def manifest(self, channel: str, sequence: int | None = None) -> bytes:
        """The bytes of a channel's newest manifest, or of an earlier one. Raises NotFound."""
        with self.database.read() as session:
            return self.blobs.read(lookup.manifest(session, channel, sequence).digest)

    def refresh_site(self) -> Changes:
        """Write the static tree again from what the channels offer; idempotent. Every channel change calls it.

        Raises Conflict when the tree is ahead of this store, NotFound without keys, Unavailable when there is no space.
        """
        return self.signed_site().refresh()

    @property
    def root_version(self) -> int:
        """The version of the newest root of trust that signs for this registry; 0 without keys."""
        folder = self.home / "keys" / "metadata"
        return newest_root(path.name for path in folder.glob("*.root.json"))

    def signed_site(self) -> SignedSite:
        """The registry's keys and its signed site, for `keys` and `site publish`."""
        from registry.signed_site import SignedSite  # noqa: PLC0415 - python-tuf and cryptography, for what signs alone

        return SignedSite(self.home, self.database, self.blobs, self._change, self._clock)

    def verify(self, *, fast: bool = False, progress: Callable[[int], None] | None = None) -> Report:
        """Check blobs against digests, rows against blobs, links against bytes, and the audit chain.

        `fast` checks sizes instead of hashing. `progress` gets the number of bytes hashed. Never raises for damage.
        """
        with self.database.read() as session:
            return verification.verify(session, self.blobs, now=self._clock(), fast=fast, progress=progress)

    def events(self, limit: int | None = None) -> tuple[Event, ...]:
        """The audit log, newest first."""
        with self.database.read() as session:
            return tuple(log.events(session, limit))

    def keeper(self) -> Keeper:
        """What keeps the registry whole: the collector and what it is asked."""
        return Keeper(self.home, self.database, self.blobs, self._change, self._clock, self._follow)

    def tokens(self) -> Tokens:
        """Who may change the registry over HTTP."""
        return Tokens(self.database, self._change)

    def acting_as(self, actor: str) -> Registry:
        """The same registry, whose changes the audit log ascribes to another actor."""
        return Registry(self.home, self.database, self.blobs, actor=actor, clock=self._clock)

    def _follow(self, done: str) -> None:
        """Bring the site after a change that is committed; when that fails, say what has been `done` all the same."""
        try:
            self.refresh_site()
        except PtdockError as error:
            wait = "remove the cause, then write the site: `ptdock keys refresh`"
            hint = wait if isinstance(error, Unavailable) else error.hint or wait
            raise type(error)(
                f"{done}, but the site was not written: {error.message}",
                hint=f"do not repeat the command: {hint}",
                **error.values,
            ) from error

    @contextmanager
    def _change(self) -> Iterator[Change]:
        with self.database.write() as session:
            yield Change(session, self._clock(), self._actor)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"
