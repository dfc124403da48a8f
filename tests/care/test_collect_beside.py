"""`ptdock gc` beside `ptdock adapter publish`: what the one deletes or condemns, the other puts again."""

import errno
from pathlib import Path

import pytest

from registry import files
from registry.files import Step
from registry.service import Registry
from tests.care.adapters import write_adapter
from tests.command_line import answer, ptdock
from tests.registry.stock import refusing


class Between:
    """Collects, without any grace, whenever a publish is about to link a blob, but so many times at most."""

    def __init__(self, home: Path, times: int) -> None:
        self.home, self.left, self.busy = home, times, False
        self.deleted: list[str] = []

    def __call__(self, step: Step) -> None:
        if step.operation == "link" and self.left and not self.busy:
            self.left, self.busy = self.left - 1, True
            done = answer(self.home, "gc", "--grace", "0")
            self.deleted += [blob["digest"] for blob in done["deleted"]]
            self.busy = False


@pytest.mark.parametrize("words", [("--name", "robot"), ("--batch",)])
def test_a_publish_puts_again_what_a_collector_without_grace_deletes_beside_it(home, registry, tmp_path, words):
    write_adapter(tmp_path / "robot", 7)
    (tmp_path / "batch.jsonl").write_text('{"directory": "robot", "name": "robot"}\n')
    chosen = (tmp_path / "robot", *words) if words[0] == "--name" else (*words, tmp_path / "batch.jsonl")
    between = Between(home, 6)

    with files.observed(between):
        answer(home, "adapter", "publish", "--foundation", "plain", *chosen)

    build, version = registry.build("robot@1.0.0"), registry.version("robot@1.0.0")
    needed = {build.file, build.factors, *build.parts.values(), *registry.source(version).files.values()}
    assert {str(blob.digest) for blob in needed} & {*between.deleted}, "the collector took nothing of it"
    assert all(registry.blobs.size(blob.digest) == blob.size for blob in needed)
    assert answer(home, "verify")["damage"] == []
    assert answer(home, "gc", "--grace", "0")["deleted"] == []


def test_a_publish_takes_condemned_blobs_back(home, registry, tmp_path):
    """An interrupted publish left them, a collection condemned them, and the publish is repeated within the grace."""
    source = write_adapter(tmp_path / "robot", 7)
    publish = ("adapter", "publish", source, "--foundation", "plain", "--name", "robot")
    with refusing({"commit"}, 0, OSError(errno.ENOSPC, "No space left on device")):
        assert ptdock(home, *publish).exit_code != 0
    condemned = {blob["digest"] for blob in answer(home, "gc")["condemned"]}

    answer(home, *publish)

    build = Registry.open(home).build("robot@1.0.0")
    assert {str(build.file.digest), str(build.factors.digest)} <= condemned
    done = answer(home, "gc", "--grace", "0")
    assert str(build.file.digest) not in {blob["digest"] for blob in done["deleted"]}
    assert registry.blobs.size(build.file.digest) == build.file.size
    assert answer(home, "verify")["damage"] == []
