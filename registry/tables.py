"""The schema: what the database holds, and what it refuses to hold. SQLite and PostgreSQL take the same one.

Content is immutable and found by digest; `blobs` lists what the store keeps, and everything that needs bytes refers to
it, so nothing that is referenced can be deleted. Composite foreign keys carry the rules that no single row can: an
entry of a line names its foundation once towards the line and once towards the build, so a build of another foundation
cannot stand in it. A channel has no pointer that could be wrong: its state is its newest manifest with the arms of
that, and manifests are only ever added. Migrations add triggers that refuse to change or remove what is immutable.

Migrations never import this module; a test compares the two.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from registry import canonical
from registry.digest import Digest

_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


class DigestText(TypeDecorator[Digest]):
    """A digest, stored as it prints."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Digest | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - its signature
        """`sha256:<hex>`."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Digest | None:  # noqa: ARG002 - its signature
        """The digest again; a row's CHECK has seen to its shape."""
        return None if value is None else Digest.parse(value)


class Document(TypeDecorator[Any]):
    """A small JSON value, stored as canonical text, so that equal values are equal rows on every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - its signature
        """Canonical JSON."""
        return None if value is None else canonical.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 - its signature
        """The value again."""
        return None if value is None else canonical.loads(value.encode(), what="a stored document")


# A STRICT table of SQLite knows no BIGINT; its INTEGER has 64 bits anyway.
Bytes = BigInteger().with_variant(Integer, "sqlite")


class Table(DeclarativeBase):
    """The models' base: every constraint has a name."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {Digest: DigestText, str: Text, int: Integer, Any: Document}


# A STRICT table refuses a value that its column's type does not hold; elsewhere that goes without saying.
_STRICT = {"sqlite_strict": True}


def _is_digest(column: str) -> CheckConstraint:
    """`column` holds `sha256:` and 64 hex digits. Trimming a set of characters leaves nothing iff it has only those."""
    return CheckConstraint(
        f"length({column}) = 71 AND substr({column}, 1, 7) = 'sha256:' "
        f"AND trim(substr({column}, 8), '{_DIGITS}abcdef') = ''",
        name=f"{column}_is_digest",
    )


def _is_name(column: str) -> CheckConstraint:
    """`column` holds a name as registry.names defines it."""
    return CheckConstraint(
        f"length({column}) BETWEEN 1 AND 64 AND trim({column}, '{_LOWER}{_DIGITS}._-') = '' "
        f"AND trim(substr({column}, 1, 1), '{_LOWER}{_DIGITS}') = '' AND substr({column}, length({column})) <> '.'",
        name=f"{column}_is_name",
    )


def _check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(rule, name=name)


def _to(target: str) -> ForeignKey:
    """A reference that keeps what it refers to from being deleted."""
    return ForeignKey(target, ondelete="RESTRICT")


def _to_all(columns: list[str], targets: list[str]) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(columns, targets, ondelete="RESTRICT")


class Identity(Table):
    """The registry itself: one row."""

    __tablename__ = "registry"
    __table_args__ = (_check("single", "id = 1"), _check("uuid", "length(uuid) = 36"), _STRICT)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str]
    created: Mapped[str]


class Blob(Table):
    """Bytes that the store keeps. `condemned_at`: when the collector decided to delete them, after a grace."""

    __tablename__ = "blobs"
    __table_args__ = (_is_digest("digest"), _check("size", "size >= 0"), _STRICT)
    digest: Mapped[Digest] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(Bytes)
    condemned_at: Mapped[str | None]


class Base(Table):
    """A checkpoint; `tensors` is the blob of its tensor table, `hint` where it last stood."""

    __tablename__ = "bases"
    __table_args__ = (_is_digest("fingerprint"), _STRICT)
    fingerprint: Mapped[Digest] = mapped_column(primary_key=True)
    tensors: Mapped[Digest] = mapped_column(_to("blobs.digest"))
    hint: Mapped[str]
    prompt: Mapped[Digest | None] = mapped_column(_to("blobs.digest"))
    created: Mapped[str]


class BaseFile(Table):
    """A base's config or tokenizer file."""

    __tablename__ = "base_files"
    __table_args__ = (_check("name", "name <> ''"), _STRICT)
    base: Mapped[Digest] = mapped_column(_to("bases.fingerprint"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[Digest] = mapped_column(_to("blobs.digest"))


class Foundation(Table):
    """One `.ptd`; `modules` is the blob of its module table."""

    __tablename__ = "foundations"
    __table_args__ = (_STRICT,)
    digest: Mapped[Digest] = mapped_column(_to("blobs.digest"), primary_key=True)
    base: Mapped[Digest] = mapped_column(_to("bases.fingerprint"), index=True)
    modules: Mapped[Digest] = mapped_column(_to("blobs.digest"))
    created: Mapped[str]


class FoundationTensor(Table):
    """One entry of a foundation's tensor table."""

    __tablename__ = "foundation_tensors"
    __table_args__ = (
        _check("key", "key <> ''"),
        _is_digest("digest"),
        _check("extent", '"offset" >= 0 AND size >= 0'),
        _STRICT,
    )
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    names: Mapped[Any] = mapped_column(Document)
    digest: Mapped[Digest]
    size: Mapped[int] = mapped_column(Bytes)
    offset: Mapped[int] = mapped_column(Bytes)
    dtype: Mapped[str]
    shape: Mapped[Any] = mapped_column(Document)


class Recipe(Table):
    """What decides a foundation's bytes, as a canonical document under its own digest."""

    __tablename__ = "recipes"
    __table_args__ = (_is_digest("digest"), _STRICT)
    digest: Mapped[Digest] = mapped_column(primary_key=True)
    document: Mapped[Any] = mapped_column(Document)


class FoundationRecipe(Table):
    """A recipe that led to a foundation; several may."""

    __tablename__ = "foundation_recipes"
    __table_args__ = (_STRICT,)
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"), primary_key=True)
    recipe: Mapped[Digest] = mapped_column(_to("recipes.digest"), primary_key=True, index=True)
    created: Mapped[str]


class FoundationName(Table):
    """A label; one foundation may have several."""

    __tablename__ = "foundation_names"
    __table_args__ = (_is_name("name"), _STRICT)
    name: Mapped[str] = mapped_column(primary_key=True)
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"), index=True)


class Structure(Table):
    """A structure document under its own digest."""

    __tablename__ = "structures"
    __table_args__ = (_is_digest("digest"), _STRICT)
    digest: Mapped[Digest] = mapped_column(primary_key=True)
    document: Mapped[Any] = mapped_column(Document)


class Template(Table):
    """A hollow program. Its digest is not unique: another ExecuTorch version, or one dead module more, may not show."""

    __tablename__ = "templates"
    __table_args__ = (
        UniqueConstraint("foundation", "structure", "context", "graph", "executorch"),
        UniqueConstraint("id", "foundation"),
        _is_digest("digest"),
        _check("sizes", "context >= 1 AND graph >= 0 AND program_size >= 0 AND kv_cache_bytes >= 0"),
        _STRICT,
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[Digest] = mapped_column(index=True)
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"))
    structure: Mapped[Digest] = mapped_column(_to("structures.digest"), index=True)
    context: Mapped[int]
    graph: Mapped[int]
    executorch: Mapped[str]
    hollow: Mapped[Digest] = mapped_column(_to("blobs.digest"))
    relocations: Mapped[Digest] = mapped_column(_to("blobs.digest"))
    program_size: Mapped[int] = mapped_column(Bytes)
    runtime: Mapped[Any] = mapped_column(Document)
    kv_cache_bytes: Mapped[int] = mapped_column(Bytes)
    created: Mapped[str]


class Adapter(Table):
    """A name under which versions stand."""

    __tablename__ = "adapters"
    __table_args__ = (_is_name("name"), _STRICT)
    name: Mapped[str] = mapped_column(primary_key=True)
    created: Mapped[str]


class Source(Table):
    """What was trained, by the digest of its canonical file list, which is a blob too."""

    __tablename__ = "sources"
    __table_args__ = (_STRICT,)
    digest: Mapped[Digest] = mapped_column(_to("blobs.digest"), primary_key=True)


class SourceFile(Table):
    """One file of that list."""

    __tablename__ = "source_files"
    __table_args__ = (_check("name", "name <> ''"), _STRICT)
    source: Mapped[Digest] = mapped_column(_to("sources.digest"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)


class Version(Table):
    """An immutable version; `yanked` is the reason."""

    __tablename__ = "versions"
    __table_args__ = (
        _check(
            "version_is_semver",
            f"length(version) BETWEEN 5 AND 255 AND trim(version, '{_LOWER}{_LOWER.upper()}{_DIGITS}.+-') = ''",
        ),
        _check("yank", "(yanked IS NULL) = (yanked_at IS NULL)"),
        _STRICT,
    )
    adapter: Mapped[str] = mapped_column(_to("adapters.name"), primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[Digest] = mapped_column(_to("sources.digest"), index=True)
    lineage: Mapped[Any] = mapped_column(Document)
    created: Mapped[str]
    yanked: Mapped[str | None]
    yanked_at: Mapped[str | None]


class Attachment(Table):
    """A file that came with a version and is no part of what was trained."""

    __tablename__ = "attachments"
    __table_args__ = (
        _to_all(["adapter", "version"], ["versions.adapter", "versions.version"]),
        _check("name", "name <> ''"),
        _STRICT,
    )
    adapter: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)


class Build(Table):
    """A version through a template; `digest` is the `.pte`, `revoked` the reason."""

    __tablename__ = "builds"
    __table_args__ = (
        _to_all(["adapter", "version"], ["versions.adapter", "versions.version"]),
        _to_all(["template", "foundation"], ["templates.id", "templates.foundation"]),
        UniqueConstraint("adapter", "version", "template"),
        UniqueConstraint("id", "foundation", "adapter"),
        _check("revocation", "(revoked IS NULL) = (revoked_at IS NULL)"),
        _STRICT,
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    adapter: Mapped[str]
    version: Mapped[str]
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"), index=True)
    template: Mapped[int]
    digest: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)
    factors: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)
    warnings: Mapped[Any] = mapped_column(Document)
    created: Mapped[str]
    revoked: Mapped[str | None]
    revoked_at: Mapped[str | None]


class BuildPart(Table):
    """What devices may also want of a build, by role (registry.artifacts.PARTS)."""

    __tablename__ = "build_parts"
    __table_args__ = (_check("role", "role IN ('prompt', 'wire', 'wire_table', 'self_test')"), _STRICT)
    build: Mapped[int] = mapped_column(_to("builds.id"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)


class Proof(Table):
    """Evidence for a build; the newest counts, and its self-test, if it has one, is the build's part of that role."""

    __tablename__ = "proofs"
    __table_args__ = (UniqueConstraint("build", "document"), _STRICT)
    id: Mapped[int] = mapped_column(primary_key=True)
    build: Mapped[int] = mapped_column(_to("builds.id"))
    document: Mapped[Digest] = mapped_column(_to("blobs.digest"), index=True)
    self_test: Mapped[Digest | None] = mapped_column(_to("blobs.digest"), index=True)
    created: Mapped[str]


class Release(Table):
    """An immutable release. `holes` is 1 when a line was allowed to lack an adapter."""

    __tablename__ = "releases"
    __table_args__ = (_check("number", "number >= 1"), _check("holes", "holes IN (0, 1)"), _STRICT)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[Digest] = mapped_column(_to("blobs.digest"), unique=True)
    holes: Mapped[int]
    created: Mapped[str]


class Line(Table):
    """One foundation of a release, in its place of preference."""

    __tablename__ = "lines"
    __table_args__ = (UniqueConstraint("release", "foundation"), _check("position", "position >= 0"), _STRICT)
    release: Mapped[int] = mapped_column(_to("releases.number"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    foundation: Mapped[Digest] = mapped_column(_to("foundations.digest"), index=True)


class LineEntry(Table):
    """One adapter of a line. Both foreign keys carry the foundation: the build must be of the line's own."""

    __tablename__ = "line_entries"
    __table_args__ = (
        _to_all(["release", "foundation"], ["lines.release", "lines.foundation"]),
        _to_all(["build", "foundation", "adapter"], ["builds.id", "builds.foundation", "builds.adapter"]),
        _STRICT,
    )
    release: Mapped[int] = mapped_column(primary_key=True)
    foundation: Mapped[Digest] = mapped_column(primary_key=True)
    adapter: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[int] = mapped_column(index=True)


class ReleaseFile(Table):
    """A file that a release pins and no build of it holds; a base may have replaced its own since."""

    __tablename__ = "release_files"
    __table_args__ = (_STRICT,)
    release: Mapped[int] = mapped_column(_to("releases.number"), primary_key=True)
    blob: Mapped[Digest] = mapped_column(_to("blobs.digest"), primary_key=True, index=True)


class Channel(Table):
    """The only mutable name. Its sequence and arms are those of its newest manifest."""

    __tablename__ = "channels"
    __table_args__ = (
        _is_name("name"),
        _check("salt", f"length(salt) = 32 AND trim(salt, '{_DIGITS}abcdef') = ''"),
        _STRICT,
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    salt: Mapped[str]
    settings: Mapped[Any] = mapped_column(Document)
    created: Mapped[str]
    deleted_at: Mapped[str | None]


class Manifest(Table):
    """A manifest as it was issued; `issued` and `expires` in Unix seconds, `log_head` the audit event before it."""

    __tablename__ = "manifests"
    __table_args__ = (_check("sequence", "sequence >= 1"), _check("lifetime", "expires > issued"), _STRICT)
    channel: Mapped[str] = mapped_column(_to("channels.name"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Bytes, primary_key=True)
    digest: Mapped[Digest] = mapped_column(_to("blobs.digest"), unique=True)
    issued: Mapped[int] = mapped_column(Bytes)
    expires: Mapped[int] = mapped_column(Bytes)
    log_head: Mapped[Digest] = mapped_column(_to("events.digest"))


class Arm(Table):
    """One arm of a manifest; no release means "keep what you have", a holdout is never taken from."""

    __tablename__ = "arms"
    __table_args__ = (
        _to_all(["channel", "sequence"], ["manifests.channel", "manifests.sequence"]),
        _check("position", "position >= 0"),
        _check("share", "share_bp BETWEEN 1 AND 10000"),
        _check("state", "state IN ('open', 'halted') AND (release IS NOT NULL OR state = 'open')"),
        _check("holdout", "holdout = 0 OR (holdout = 1 AND release IS NULL)"),
        _STRICT,
    )
    channel: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(Bytes, primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    release: Mapped[int | None] = mapped_column(_to("releases.number"), index=True)
    share_bp: Mapped[int]
    state: Mapped[str]
    holdout: Mapped[int]


class Token(Table):
    """Who may change the registry over HTTP, as the digest of what its holder sends; it may be revoked, no more."""

    __tablename__ = "tokens"
    __table_args__ = (
        _is_digest("digest"),
        _is_name("name"),
        _check("id", f"length(id) = 16 AND trim(id, '{_DIGITS}abcdef') = ''"),
        _check("scope", "scope IN ('publish', 'release', 'admin')"),
        _STRICT,
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    scope: Mapped[str]
    digest: Mapped[Digest]
    created: Mapped[str]
    revoked_at: Mapped[str | None]


class Event(Table):
    """One change. `digest` covers the row with `prev`, the digest of the event before: a chain without forks."""

    __tablename__ = "events"
    __table_args__ = (_is_digest("digest"), _is_digest("prev"), _check("id", "id >= 1"), _STRICT)
    id: Mapped[int] = mapped_column(Bytes, primary_key=True, autoincrement=False)
    at: Mapped[str]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    before: Mapped[Any | None] = mapped_column(Document)
    after: Mapped[Any | None] = mapped_column(Document)
    prev: Mapped[Digest] = mapped_column(unique=True)
    digest: Mapped[Digest] = mapped_column(unique=True)
