"""The first schema.

Revision 0001, after nothing. Text holds digests (`sha256:<hex>`), canonical JSON and times (ISO 8601, UTC). The
triggers refuse to change or remove what is immutable; a later migration that copies a table has to make them again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_SEMVER = f"length(version) BETWEEN 5 AND 255 AND trim(version, '{_LOWER}{_LOWER.upper()}{_DIGITS}.+-') = ''"
_BYTES = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# What may never be updated, by table; and the tables whose rows may never be removed.
_FIXED = {
    "registry": "id, uuid, created",
    "blobs": "digest, size",
    "bases": "fingerprint, tensors, created",
    "foundations": "digest, base, modules, created",
    "foundation_tensors": None,
    "recipes": None,
    "structures": None,
    "templates": None,
    "sources": None,
    "source_files": None,
    "attachments": None,
    "versions": "adapter, version, source, lineage, created",
    "builds": "id, adapter, version, foundation, template, digest, factors, warnings, created",
    "releases": None,
    "lines": None,
    "line_entries": None,
    "manifests": None,
    "arms": None,
    "events": None,
}
_KEPT = ("registry", "versions", "releases", "lines", "line_entries", "channels", "manifests", "arms", "events")


def _is_digest(table: str, column: str) -> sa.CheckConstraint:
    rule = (
        f"length({column}) = 71 AND substr({column}, 1, 7) = 'sha256:' "
        f"AND trim(substr({column}, 8), '{_DIGITS}abcdef') = ''"
    )
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{column}_is_digest"))


def _is_name(table: str, column: str) -> sa.CheckConstraint:
    rule = (
        f"length({column}) BETWEEN 1 AND 64 AND trim({column}, '{_LOWER}{_DIGITS}._-') = '' "
        f"AND trim(substr({column}, 1, 1), '{_LOWER}{_DIGITS}') = '' AND substr({column}, length({column})) <> '.'"
    )
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{column}_is_name"))


def _to(columns: list[str], targets: list[str], name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(columns, targets, name=op.f(name), ondelete="RESTRICT")


def _refuse(table: str, change: str, columns: str | None = None) -> None:
    """Make the trigger that refuses a change (UPDATE or DELETE) of a table, or of some of its columns."""
    name = f"{table}_refuse_{change.lower()}"
    when = f"BEFORE {change} {f'OF {columns} ' if columns else ''}ON {table}"
    if op.get_bind().dialect.name == "sqlite":
        action = f"BEGIN SELECT RAISE(ABORT, '{table} is immutable: no {change}'); END"
    else:
        action = f"FOR EACH ROW EXECUTE FUNCTION ptdock_refuse('{table} is immutable: no {change}')"
    op.execute(f"CREATE TRIGGER {name} {when} {action}")


def _make_triggers() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION ptdock_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
        )
    for table, columns in _FIXED.items():
        _refuse(table, "UPDATE", columns)
    for table in _KEPT:
        _refuse(table, "DELETE")


def upgrade() -> None:
    op.create_table(
        "adapters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _is_name("adapters", "name"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_adapters")),
        sqlite_strict=True,
    )
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", _BYTES, nullable=False),
        sa.Column("condemned_at", sa.Text(), nullable=True),
        _is_digest("blobs", "digest"),
        sa.CheckConstraint("size >= 0", name=op.f("ck_blobs_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blobs")),
        sqlite_strict=True,
    )
    op.create_table(
        "channels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.Text(), nullable=True),
        _is_name("channels", "name"),
        sa.CheckConstraint("length(salt) = 32 AND trim(salt, '0123456789abcdef') = ''", name=op.f("ck_channels_salt")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_channels")),
        sqlite_strict=True,
    )
    op.create_table(
        "events",
        sa.Column("id", _BYTES, autoincrement=False, nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("prev", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        _is_digest("events", "digest"),
        _is_digest("events", "prev"),
        sa.CheckConstraint("id >= 1", name=op.f("ck_events_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("digest", name=op.f("uq_events_digest")),
        sa.UniqueConstraint("prev", name=op.f("uq_events_prev")),
        sqlite_strict=True,
    )
    op.create_table(
        "recipes",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        _is_digest("recipes", "digest"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_recipes")),
        sqlite_strict=True,
    )
    op.create_table(
        "registry",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_registry_single")),
        sa.CheckConstraint("length(uuid) = 36", name=op.f("ck_registry_uuid")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registry")),
        sqlite_strict=True,
    )
    op.create_table(
        "structures",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        _is_digest("structures", "digest"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_structures")),
        sqlite_strict=True,
    )
    op.create_table(
        "bases",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("tensors", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        _is_digest("bases", "fingerprint"),
        _to(["tensors"], ["blobs.digest"], "fk_bases_tensors"),
        _to(["prompt"], ["blobs.digest"], "fk_bases_prompt"),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_bases")),
        sqlite_strict=True,
    )
    op.create_table(
        "manifests",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("sequence", _BYTES, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("issued", _BYTES, nullable=False),
        sa.Column("expires", _BYTES, nullable=False),
        sa.Column("log_head", sa.Text(), nullable=False),
        sa.CheckConstraint("expires > issued", name=op.f("ck_manifests_lifetime")),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_manifests_sequence")),
        _to(["channel"], ["channels.name"], "fk_manifests_channel"),
        _to(["digest"], ["blobs.digest"], "fk_manifests_digest"),
        _to(["log_head"], ["events.digest"], "fk_manifests_log_head"),
        sa.PrimaryKeyConstraint("channel", "sequence", name=op.f("pk_manifests")),
        sa.UniqueConstraint("digest", name=op.f("uq_manifests_digest")),
        sqlite_strict=True,
    )
    op.create_table(
        "releases",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("holes", sa.Integer(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.CheckConstraint("holes IN (0, 1)", name=op.f("ck_releases_holes")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_releases_number")),
        _to(["document"], ["blobs.digest"], "fk_releases_document"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_releases")),
        sa.UniqueConstraint("document", name=op.f("uq_releases_document")),
        sqlite_strict=True,
    )
    op.create_table(
        "sources",
        sa.Column("digest", sa.Text(), nullable=False),
        _to(["digest"], ["blobs.digest"], "fk_sources_digest"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sources")),
        sqlite_strict=True,
    )
    op.create_table(
        "arms",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("sequence", _BYTES, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("release", sa.Integer(), nullable=True),
        sa.Column("share_bp", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("holdout", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "state IN ('open', 'halted') AND (release IS NOT NULL OR state = 'open')", name=op.f("ck_arms_state")
        ),
        sa.CheckConstraint("holdout = 0 OR (holdout = 1 AND release IS NULL)", name=op.f("ck_arms_holdout")),
        sa.CheckConstraint("position >= 0", name=op.f("ck_arms_position")),
        sa.CheckConstraint("share_bp BETWEEN 1 AND 10000", name=op.f("ck_arms_share")),
        _to(["channel", "sequence"], ["manifests.channel", "manifests.sequence"], "fk_arms_channel_sequence"),
        _to(["release"], ["releases.number"], "fk_arms_release"),
        sa.PrimaryKeyConstraint("channel", "sequence", "position", name=op.f("pk_arms")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_arms_release"), "arms", ["release"])
    op.create_table(
        "base_files",
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_base_files_name")),
        _to(["base"], ["bases.fingerprint"], "fk_base_files_base"),
        _to(["blob"], ["blobs.digest"], "fk_base_files_blob"),
        sa.PrimaryKeyConstraint("base", "name", name=op.f("pk_base_files")),
        sqlite_strict=True,
    )
    op.create_table(
        "foundations",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("modules", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _to(["base"], ["bases.fingerprint"], "fk_foundations_base"),
        _to(["digest"], ["blobs.digest"], "fk_foundations_digest"),
        _to(["modules"], ["blobs.digest"], "fk_foundations_modules"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_foundations")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_foundations_base"), "foundations", ["base"])
    op.create_table(
        "source_files",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_source_files_name")),
        _to(["blob"], ["blobs.digest"], "fk_source_files_blob"),
        _to(["source"], ["sources.digest"], "fk_source_files_source"),
        sa.PrimaryKeyConstraint("source", "name", name=op.f("pk_source_files")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_source_files_blob"), "source_files", ["blob"])
    op.create_table(
        "versions",
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("yanked", sa.Text(), nullable=True),
        sa.Column("yanked_at", sa.Text(), nullable=True),
        sa.CheckConstraint(_SEMVER, name=op.f("ck_versions_version_is_semver")),
        sa.CheckConstraint("(yanked IS NULL) = (yanked_at IS NULL)", name=op.f("ck_versions_yank")),
        _to(["adapter"], ["adapters.name"], "fk_versions_adapter"),
        _to(["source"], ["sources.digest"], "fk_versions_source"),
        sa.PrimaryKeyConstraint("adapter", "version", name=op.f("pk_versions")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_versions_source"), "versions", ["source"])
    op.create_table(
        "attachments",
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_attachments_name")),
        _to(["adapter", "version"], ["versions.adapter", "versions.version"], "fk_attachments_adapter_version"),
        _to(["blob"], ["blobs.digest"], "fk_attachments_blob"),
        sa.PrimaryKeyConstraint("adapter", "version", "name", name=op.f("pk_attachments")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_attachments_blob"), "attachments", ["blob"])
    op.create_table(
        "foundation_names",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("foundation", sa.Text(), nullable=False),
        _is_name("foundation_names", "name"),
        _to(["foundation"], ["foundations.digest"], "fk_foundation_names_foundation"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_foundation_names")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_foundation_names_foundation"), "foundation_names", ["foundation"])
    op.create_table(
        "foundation_recipes",
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _to(["foundation"], ["foundations.digest"], "fk_foundation_recipes_foundation"),
        _to(["recipe"], ["recipes.digest"], "fk_foundation_recipes_recipe"),
        sa.PrimaryKeyConstraint("foundation", "recipe", name=op.f("pk_foundation_recipes")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_foundation_recipes_recipe"), "foundation_recipes", ["recipe"])
    op.create_table(
        "foundation_tensors",
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", _BYTES, nullable=False),
        sa.Column("offset", _BYTES, nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.CheckConstraint("key <> ''", name=op.f("ck_foundation_tensors_key")),
        _is_digest("foundation_tensors", "digest"),
        sa.CheckConstraint('"offset" >= 0 AND size >= 0', name=op.f("ck_foundation_tensors_extent")),
        _to(["foundation"], ["foundations.digest"], "fk_foundation_tensors_foundation"),
        sa.PrimaryKeyConstraint("foundation", "key", name=op.f("pk_foundation_tensors")),
        sqlite_strict=True,
    )
    op.create_table(
        "lines",
        sa.Column("release", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_lines_position")),
        _to(["foundation"], ["foundations.digest"], "fk_lines_foundation"),
        _to(["release"], ["releases.number"], "fk_lines_release"),
        sa.PrimaryKeyConstraint("release", "position", name=op.f("pk_lines")),
        sa.UniqueConstraint("release", "foundation", name=op.f("uq_lines_release_foundation")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_lines_foundation"), "lines", ["foundation"])
    op.create_table(
        "templates",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.Column("structure", sa.Text(), nullable=False),
        sa.Column("context", sa.Integer(), nullable=False),
        sa.Column("graph", sa.Integer(), nullable=False),
        sa.Column("executorch", sa.Text(), nullable=False),
        sa.Column("hollow", sa.Text(), nullable=False),
        sa.Column("relocations", sa.Text(), nullable=False),
        sa.Column("program_size", _BYTES, nullable=False),
        sa.Column("runtime", sa.Text(), nullable=False),
        sa.Column("kv_cache_bytes", _BYTES, nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _is_digest("templates", "digest"),
        sa.CheckConstraint(
            "context >= 1 AND graph >= 0 AND program_size >= 0 AND kv_cache_bytes >= 0", name=op.f("ck_templates_sizes")
        ),
        _to(["foundation"], ["foundations.digest"], "fk_templates_foundation"),
        _to(["hollow"], ["blobs.digest"], "fk_templates_hollow"),
        _to(["relocations"], ["blobs.digest"], "fk_templates_relocations"),
        _to(["structure"], ["structures.digest"], "fk_templates_structure"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_templates")),
        sa.UniqueConstraint(
            "foundation",
            "structure",
            "context",
            "graph",
            "executorch",
            name=op.f("uq_templates_foundation_structure_context_graph_executorch"),
        ),
        sa.UniqueConstraint("id", "foundation", name=op.f("uq_templates_id_foundation")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_templates_digest"), "templates", ["digest"])
    op.create_index(op.f("ix_templates_structure"), "templates", ["structure"])
    op.create_table(
        "builds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.Column("template", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("factors", sa.Text(), nullable=False),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("revoked", sa.Text(), nullable=True),
        sa.Column("revoked_at", sa.Text(), nullable=True),
        sa.CheckConstraint("(revoked IS NULL) = (revoked_at IS NULL)", name=op.f("ck_builds_revocation")),
        _to(["adapter", "version"], ["versions.adapter", "versions.version"], "fk_builds_adapter_version"),
        _to(["digest"], ["blobs.digest"], "fk_builds_digest"),
        _to(["factors"], ["blobs.digest"], "fk_builds_factors"),
        _to(["foundation"], ["foundations.digest"], "fk_builds_foundation"),
        _to(["template", "foundation"], ["templates.id", "templates.foundation"], "fk_builds_template_foundation"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
        sa.UniqueConstraint("adapter", "version", "template", name=op.f("uq_builds_adapter_version_template")),
        sa.UniqueConstraint("id", "foundation", "adapter", name=op.f("uq_builds_id_foundation_adapter")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_builds_digest"), "builds", ["digest"])
    op.create_index(op.f("ix_builds_factors"), "builds", ["factors"])
    op.create_index(op.f("ix_builds_foundation"), "builds", ["foundation"])
    op.create_table(
        "build_parts",
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('prompt', 'wire', 'wire_table', 'self_test')", name=op.f("ck_build_parts_role")),
        _to(["blob"], ["blobs.digest"], "fk_build_parts_blob"),
        _to(["build"], ["builds.id"], "fk_build_parts_build"),
        sa.PrimaryKeyConstraint("build", "role", name=op.f("pk_build_parts")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_build_parts_blob"), "build_parts", ["blob"])
    op.create_table(
        "line_entries",
        sa.Column("release", sa.Integer(), nullable=False),
        sa.Column("foundation", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        _to(
            ["build", "foundation", "adapter"],
            ["builds.id", "builds.foundation", "builds.adapter"],
            "fk_line_entries_build_foundation_adapter",
        ),
        _to(["release", "foundation"], ["lines.release", "lines.foundation"], "fk_line_entries_release_foundation"),
        sa.PrimaryKeyConstraint("release", "foundation", "adapter", name=op.f("pk_line_entries")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_line_entries_build"), "line_entries", ["build"])
    _make_triggers()


def downgrade() -> None:
    for table in (
        "line_entries",
        "build_parts",
        "builds",
        "templates",
        "lines",
        "foundation_tensors",
        "foundation_recipes",
        "foundation_names",
        "attachments",
        "versions",
        "source_files",
        "foundations",
        "base_files",
        "arms",
        "sources",
        "releases",
        "manifests",
        "bases",
        "structures",
        "registry",
        "recipes",
        "events",
        "channels",
        "blobs",
        "adapters",
    ):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION ptdock_refuse()")
