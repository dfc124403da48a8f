"""The schema's history. Alembic runs it (`ptdock init`, `ptdock db upgrade`); no version imports live code."""
