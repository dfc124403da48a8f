"""Tokens: who may change a registry over HTTP.

Revision 0003, after 0002. Only a token's digest is kept; all that can happen to a token is that it is revoked.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_IS_DIGEST = (
    f"length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '{_DIGITS}abcdef') = ''"
)
_IS_NAME = (
    f"length(name) BETWEEN 1 AND 64 AND trim(name, '{_LOWER}{_DIGITS}._-') = '' "
    f"AND trim(substr(name, 1, 1), '{_LOWER}{_DIGITS}') = '' AND substr(name, length(name)) <> '.'"
)


def _refuse(change: str, columns: str = "") -> None:
    """Make the trigger that refuses a change (UPDATE or DELETE) of the table, or of some of its columns."""
    name, when = f"tokens_refuse_{change.lower()}", f"BEFORE {change} {columns}ON tokens"
    if op.get_bind().dialect.name == "sqlite":
        action = f"BEGIN SELECT RAISE(ABORT, 'tokens is immutable: no {change}'); END"
    else:
        action = f"FOR EACH ROW EXECUTE FUNCTION ptdock_refuse('tokens is immutable: no {change}')"
    op.execute(f"CREATE TRIGGER {name} {when} {action}")


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("revoked_at", sa.Text(), nullable=True),
        sa.CheckConstraint(_IS_DIGEST, name=op.f("ck_tokens_digest_is_digest")),
        sa.CheckConstraint(_IS_NAME, name=op.f("ck_tokens_name_is_name")),
        sa.CheckConstraint(f"length(id) = 16 AND trim(id, '{_DIGITS}abcdef') = ''", name=op.f("ck_tokens_id")),
        sa.CheckConstraint("scope IN ('publish', 'release', 'admin')", name=op.f("ck_tokens_scope")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
        sqlite_strict=True,
    )
    _refuse("UPDATE", "OF id, name, scope, digest, created ")
    _refuse("DELETE")


def downgrade() -> None:
    op.drop_table("tokens")
