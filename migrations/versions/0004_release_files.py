"""What a release pins and no build of it holds: segment tables, base programs, tokenizers, prompts.

Revision 0004, after 0003. A base may replace its own files; a release that was made before keeps those that it pins.
Releases of before have no rows here: their documents, which the collector reads, say the same.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _refuse(change: str) -> None:
    """Make the trigger that refuses a change (UPDATE or DELETE) of the table."""
    name, when = f"release_files_refuse_{change.lower()}", f"BEFORE {change} ON release_files"
    if op.get_bind().dialect.name == "sqlite":
        action = f"BEGIN SELECT RAISE(ABORT, 'release_files is immutable: no {change}'); END"
    else:
        action = f"FOR EACH ROW EXECUTE FUNCTION ptdock_refuse('release_files is immutable: no {change}')"
    op.execute(f"CREATE TRIGGER {name} {when} {action}")


def upgrade() -> None:
    op.create_table(
        "release_files",
        sa.Column("release", sa.Integer(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["release"], ["releases.number"], name=op.f("fk_release_files_release"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["blob"], ["blobs.digest"], name=op.f("fk_release_files_blob"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("release", "blob", name=op.f("pk_release_files")),
        sqlite_strict=True,
    )
    op.create_index(op.f("ix_release_files_blob"), "release_files", ["blob"])
    _refuse("UPDATE")
    _refuse("DELETE")


def downgrade() -> None:
    op.drop_table("release_files")
