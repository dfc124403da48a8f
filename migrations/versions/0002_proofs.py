"""Proofs of builds: evidence that a published program computes what was trained.

Revision 0002, after 0001. A proof is never changed; the newest one of a build counts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _to(columns: list[str], targets: list[str], name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(columns, targets, name=op.f(name), ondelete="RESTRICT")


def _refuse(table: str, change: str) -> None:
    """Make the trigger that refuses a change (UPDATE or DELETE) of a table."""
    name, when = f"{table}_refuse_{change.lower()}", f"BEFORE {change} ON {table}"
    if op.get_bind().dialect.name == "sqlite":
        action = f"BEGIN SELECT RAISE(ABORT, '{table} is immutable: no {change}'); END"
    else:
        action = f"FOR EACH ROW EXECUTE FUNCTION ptdock_refuse('{table} is immutable: no {change}')"
    op.execute(f"CREATE TRIGGER {name} {when} {action}")


def upgrade() -> None:
    op.create_table(
        "proofs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("self_test", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _to(["build"], ["builds.id"], "fk_proofs_build"),
        _to(["document"], ["blobs.digest"], "fk_proofs_document"),
        _to(["self_test"], ["blobs.digest"], "fk_proofs_self_test"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proofs")),
        sa.UniqueConstraint("build", "document", name=op.f("uq_proofs_build_document")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_proofs_document"), "proofs", ["document"])
    op.create_index(op.f("ix_proofs_self_test"), "proofs", ["self_test"])
    _refuse("proofs", "UPDATE")


def downgrade() -> None:
    op.drop_table("proofs")
