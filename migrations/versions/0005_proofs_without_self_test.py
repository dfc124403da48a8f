"""Proofs without a self-test: a module that is no text model has no tokens that devices could replay.

Revision 0005, after 0004. SQLite cannot make a column nullable, so its table is made anew with all that is in it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0005"
down_revision = "0004"

_COLUMNS = "id, build, document, self_test, created"
_INDEXES = {"ix_proofs_document": ["document"], "ix_proofs_self_test": ["self_test"]}


def _to(columns: list[str], targets: list[str], name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(columns, targets, name=op.f(name), ondelete="RESTRICT")


def _alter(*, nullable: bool) -> None:
    if op.get_bind().dialect.name == "sqlite":
        _make_anew(nullable=nullable)
    else:
        op.alter_column("proofs", "self_test", nullable=nullable)


def _make_anew(*, nullable: bool) -> None:
    """Another table of the same name: renaming takes triggers and indexes along, so they are made anew as well."""
    op.execute("DROP TRIGGER proofs_refuse_update")
    for name in _INDEXES:
        op.drop_index(op.f(name), "proofs")
    op.rename_table("proofs", "proofs_before")
    op.create_table(
        "proofs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("self_test", sa.Text(), nullable=nullable),
        sa.Column("created", sa.Text(), nullable=False),
        _to(["build"], ["builds.id"], "fk_proofs_build"),
        _to(["document"], ["blobs.digest"], "fk_proofs_document"),
        _to(["self_test"], ["blobs.digest"], "fk_proofs_self_test"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proofs")),
        sa.UniqueConstraint("build", "document", name=op.f("uq_proofs_build_document")),
        sqlite_strict=True,
    )
    op.execute(f"INSERT INTO proofs ({_COLUMNS}) SELECT {_COLUMNS} FROM proofs_before")  # noqa: S608 - our own words
    op.drop_table("proofs_before")
    for name, columns in _INDEXES.items():
        op.create_index(op.f(name), "proofs", columns)
    op.execute(
        "CREATE TRIGGER proofs_refuse_update BEFORE UPDATE ON proofs "
        "BEGIN SELECT RAISE(ABORT, 'proofs is immutable: no UPDATE'); END"
    )


def upgrade() -> None:
    _alter(nullable=True)


def downgrade() -> None:
    without = op.get_bind().scalar(sa.text("SELECT count(*) FROM proofs WHERE self_test IS NULL"))
    if without:
        raise CommandError(
            f"{without} of the proofs have no self-test, which schema {down_revision} cannot hold: nothing was "
            f"changed. Stay on schema {revision}, or restore the backup that was made before it."
        )
    _alter(nullable=False)
