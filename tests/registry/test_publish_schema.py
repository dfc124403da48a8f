"""What `adapter publish` answers is as its schema says."""

from pathlib import Path

from tests.command_line import answer
from tests.registry.test_schemas import validator
from tests.test_cli_store import write_adapter


def test_a_publish_answers_what_its_schema_says(worker_home: Path, tmp_path: Path):
    first = write_adapter(tmp_path / "first", seed=31)
    words = ("--foundation", "plain", "--name", "described")
    for outcome in ("version", "unchanged"):
        found = answer(worker_home, "adapter", "publish", first, *words)
        validator("publish", strict=False).validate(found)
        assert found["outcome"] == outcome
