"""Many adapters at once: checked before the first is written, passed over when they are there, equal to single ones."""

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from exporter import batch
from exporter.batch import publish_batch
from exporter.batch_file import read_batch
from exporter.publish import PublishOptions, publish
from registry import files
from registry.digest import Digest
from registry.errors import AdapterRefused, Conflict, FormatError, InputError, NotFound, Unavailable
from registry.service import Registry
from tests.care.adapters import write_adapter
from tests.command_line import answer, ptdock, refusal
from tests.registry.crashes import in_a_child, killing
from tests.registry.files import run_script

DEFAULTS = PublishOptions(foundation="plain", name="")


def listed(directory: Path, *lines: dict) -> Path:
    path = directory / "batch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Forty adapters of one structure, `a0` to `a39`: two groups and a half."""
    for number in range(40):
        write_adapter(tmp_path / f"a{number}", 100 + number)
    return listed(tmp_path, *({"directory": f"a{number}", "name": f"n{number}"} for number in range(40)))


def run(registry: Registry, path: Path) -> list[batch.Done]:
    return list(publish_batch(registry, read_batch(path, DEFAULTS)))


def test_a_batch_publishes_what_single_publishes_would(registry, many, offering_home, tmp_path):
    done = run(registry, many)
    other = Registry.open(Path(shutil.copytree(offering_home / "home", tmp_path / "single")))

    assert [(each.ref, each.outcome) for each in done] == [(f"n{i}@1.0.0", "version") for i in range(40)]
    for number in (0, 15, 16, 39):
        single = publish(other, tmp_path / f"a{number}", replace(DEFAULTS, name=f"n{number}"))
        assert registry.build(f"n{number}@1.0.0") == single.build
        assert done[number].program == single.build.file.digest
        version = registry.version(f"n{number}@1.0.0")
        assert registry.source(version) == other.source(other.version(f"n{number}@1.0.0"))
    assert registry.verify().clean
    assert list((registry.home / "ingest").iterdir()) == []


def test_a_batch_that_was_done_is_passed_over(registry, many):
    first = run(registry, many)
    events = registry.events()

    again = run(registry, many)

    assert {each.outcome for each in again} == {"unchanged"}
    assert [each.program for each in again] == [each.program for each in first]
    assert registry.events() == events


def test_a_batch_that_was_stopped_goes_on_where_it_was(registry, many):
    steps = publish_batch(registry, read_batch(many, DEFAULTS))
    for _ in range(5):
        next(steps)
    steps.close()
    assert len(registry.adapters()) == 2 + batch.GROUP
    assert list((registry.home / "ingest").iterdir()) == []

    outcomes = [each.outcome for each in run(registry, many)]

    assert outcomes == ["unchanged"] * batch.GROUP + ["version"] * (40 - batch.GROUP)
    assert registry.verify().clean


def test_a_batch_that_is_killed_leaves_a_clean_registry_and_goes_on(registry, tmp_path):
    for number in range(18):
        write_adapter(tmp_path / f"a{number}", number)
    short = listed(tmp_path, *({"directory": f"a{i}", "name": f"n{i}"} for i in range(18)))
    for after in (3, 30, 60, 100, 130, 160, 200):
        home = Path(shutil.copytree(registry.home, tmp_path / f"try-{after}"))
        code = in_a_child(lambda home=home: run(Registry.open(home), short), killing(after))
        assert code == -signal.SIGKILL
        again = Registry.open(home)
        report = again.verify(fast=True)
        assert report.clean, report.damage
        assert len(again.adapters()) in {2, 2 + batch.GROUP}, "a group is recorded whole or not at all"
        assert {each.outcome for each in run(again, short)} <= {"version", "unchanged"}
        assert len(again.adapters()) == 20


@pytest.mark.parametrize("writes", [0, 7, 70, 100, 150])
def test_a_disk_that_is_full_from_some_write_on_leaves_nothing_unfinished(registry, many, writes):
    left = iter(range(writes))

    def full(step: files.Step) -> None:
        if step.operation == "write" and next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with files.observed(full), pytest.raises(Unavailable, match=f"no space left for {registry.home}") as caught:
        run(registry, many)
    assert "free some space, then repeat" in caught.value.hint
    assert list((registry.home / "ingest").iterdir()) == []
    assert len(registry.adapters()) in {2, 2 + batch.GROUP, 2 + 2 * batch.GROUP}
    assert registry.verify().clean
    assert {each.outcome for each in run(registry, many)} <= {"version", "unchanged"}
    assert len(registry.adapters()) == 42


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of its own at a directory; the test is passed over where none may be mounted."""
    at.mkdir()
    if shutil.which("mount") is None or os.geteuid():
        pytest.skip("only root may mount")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


@pytest.mark.parametrize("free", [200, 900, 1100])
def test_a_batch_on_a_full_disk_names_it_and_goes_on_when_there_is_space(registry, many, tmp_path, free):
    """Blobs or the database: whatever the disk refuses first."""
    disk = tmp_path / "disk"
    with small_disk(disk, "32m"):
        home = Path(shutil.copytree(registry.home, disk / "home"))
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(disk).free - free * 1024))
        command = ("adapter", "publish", "--batch", many, "--foundation", "plain")
        refused = refusal(home, *command, code=8)
        assert refused["message"].startswith(f"no space left for {home}")
        ballast.unlink()
        small = Registry.open(home)
        assert list((home / "ingest").iterdir()) == []
        assert len(small.adapters()) in {2, 2 + batch.GROUP, 2 + 2 * batch.GROUP}
        assert small.verify().clean
        assert len(answer(home, *command)["adapters"]) == 40
        assert len(small.adapters()) == 42
        assert small.verify().clean


def test_all_are_checked_before_the_first_is_written(registry, many, tmp_path):
    """One holds NaN, one is of another shape, one is no directory: all three are told, and nothing is published."""
    model = tmp_path / "a3" / "adapter_model.safetensors"
    tensors = load_file(write_adapter(tmp_path / "wide", 1, wide=True) / "adapter_model.safetensors")
    name = next(iter(tensors))
    tensors[name] = np.full_like(tensors[name], np.nan)
    save_file(tensors, model)
    settings = json.loads((tmp_path / "a5" / "adapter_config.json").read_text())
    (tmp_path / "a5" / "adapter_config.json").write_text(json.dumps({**settings, "r": 5}))
    shutil.rmtree(tmp_path / "a7")
    before = registry.events(), set(registry.blobs.descriptors())

    with pytest.raises(AdapterRefused) as caught:
        run(registry, many)

    assert caught.value.message == "3 of 40 adapters are refused; nothing was published"
    found = caught.value.values["findings"]
    assert {finding["line"] for finding in found} == {4, 6, 8}
    assert any("line 4 (n3)" in finding["subject"] and "NaN" in finding["message"] for finding in found)
    assert any(finding["subject"] == "line 8 (n7)" and "not a directory" in finding["message"] for finding in found)
    assert (registry.events(), set(registry.blobs.descriptors())) == before


VERSION = {"version": "1.0.1"}


def test_a_version_has_one_source_also_within_a_batch(registry, tmp_path):
    for number in (1, 2):
        write_adapter(tmp_path / f"a{number}", number)
    twice = {"name": "new", "version": "1.0.0"}

    same = run(registry, listed(tmp_path, {"directory": "a1", **twice}, {"directory": "a1", **twice}))
    assert [each.outcome for each in same] == ["version", "unchanged"]

    with pytest.raises(AdapterRefused) as caught:
        run(
            registry,
            listed(
                tmp_path,
                {"directory": "a1", "name": "b", "version": "1.0.0"},
                {"directory": "a2", "name": "b", "version": "1.0.0"},
            ),
        )
    (finding,) = caught.value.values["findings"]
    assert finding["message"] == "b@1.0.0 is another source than in line 1"
    chosen = [{"directory": "a1", "name": "b"}, {"directory": "a2", "name": "b", "version": "1.0.0"}]
    for lines, line in ((chosen, 1), ([*chosen[:1], {"directory": "a2", "name": "b"}, {**chosen[0], **VERSION}], 2)):
        with pytest.raises(AdapterRefused) as caught:
            run(registry, listed(tmp_path, *lines))
        assert caught.value.values["findings"][0]["message"].endswith(f" is another source than in line {line}")
    assert "b" not in registry.adapters()
    with pytest.raises(AdapterRefused) as caught:
        run(registry, listed(tmp_path, {"directory": "a2", **twice}))
    assert "new@1.0.0 is immutable" in caught.value.values["findings"][0]["message"]


def test_what_is_too_much_of_a_lineage_is_told_before_the_first_is_written(registry, many):
    lines = many.read_text().splitlines()
    lines[-1] = json.dumps({**json.loads(lines[-1]), "meta": {"notes": "x" * 70_000}})
    many.write_text("\n".join(lines))
    before = registry.events()
    with pytest.raises(AdapterRefused) as caught:
        run(registry, many)
    (finding,) = caught.value.values["findings"]
    assert finding["line"] == len(lines)
    assert "at most 65536 are kept" in finding["message"]
    assert registry.events() == before


def test_versions_of_one_adapter_follow_each_other(registry, tmp_path):
    lines = []
    for number in range(3):
        write_adapter(tmp_path / f"a{number}", number + 10)
        lines.append({"directory": f"a{number}", "name": "series"})

    assert [each.ref for each in run(registry, listed(tmp_path, *lines))] == [f"series@1.0.{i}" for i in range(3)]


def test_a_line_says_what_the_command_line_would(registry, tmp_path):
    write_adapter(tmp_path / "a", 1)
    (tmp_path / "a" / "ptdock.json").write_text('{"schema": 1, "lineage": {"run": "https://a"}}')
    line = {
        "directory": "a",
        "name": "told",
        "version": "2.1.0",
        "foundation": "plain",
        "meta": {"owner": "bob", "n": 1},
    }
    defaults = replace(DEFAULTS, foundation="tied", lineage={"owner": "ann", "code": "abc"})

    list(publish_batch(registry, read_batch(listed(tmp_path, line), defaults)))

    version = registry.version("told@2.1.0")
    assert version.lineage["owner"] == "bob"
    assert (version.lineage["code"], version.lineage["n"]) == ("abc", 1)
    assert registry.build("told").foundation == registry.foundation("plain").file.digest


def test_a_structure_without_a_template_is_exported_once_all_are_checked(registry, tmp_path):
    """Rank 5 is new: one export, then relinking; the two others of it need none."""
    lines = []
    for number in range(3):
        write_adapter(tmp_path / f"a{number}", number, rank=5)
        lines.append({"directory": f"a{number}", "name": f"five{number}"})
    said: list[str] = []

    done = list(publish_batch(registry, read_batch(listed(tmp_path, *lines), DEFAULTS), said.append))

    assert [each.outcome for each in done] == ["version"] * 3
    steps = ["checking 3 adapters", "hashing the checkpoint", "publishing 3 adapters"]
    assert [step for step in said if step in steps] == steps
    assert len({registry.template_of(registry.build(f"five{number}")).digest for number in range(3)}) == 1


def test_a_file_that_changes_after_the_check_stops_the_batch(registry, tmp_path):
    write_adapter(tmp_path / "a", 1)
    entries = read_batch(listed(tmp_path, {"directory": "a", "name": "changing"}), DEFAULTS)
    steps = publish_batch(registry, entries)
    write_adapter(tmp_path / "a", 2)

    with pytest.raises(Conflict, match="changed while it was being published"):
        next(steps)

    assert "changing" not in registry.adapters()
    assert list((registry.home / "ingest").iterdir()) == []
    assert registry.verify().clean


def test_what_a_collector_took_in_between_is_put_again(registry, tmp_path):
    """The collector runs without any grace between making a group durable and recording it."""
    for number in range(3):
        write_adapter(tmp_path / f"a{number}", number)
    short = listed(tmp_path, *({"directory": f"a{i}", "name": f"n{i}"} for i in range(3)))
    done = False

    def collect(step: files.Step) -> None:
        nonlocal done
        if step.operation == "sync" and step.path.name == "sha256" and not done:
            done = True
            with files.observed(lambda _step: None):
                collector.keeper().collect(grace=0)

    collector = Registry.open(registry.home)
    with files.observed(collect):
        results = run(registry, short)

    assert done
    assert [each.outcome for each in results] == ["version"] * 3
    assert registry.verify().clean


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no adapter in it"),
        ("{", "line 1: not JSON"),
        ("[]", "line 1: expected an object"),
        ('\n{"name": "x"}', "line 2: 'directory' is missing"),
        ('{"directory": "a"}', "'name'"),
        ('{"directory": "a", "name": "../x"}', "is not a usable adapter name"),
        ('{"directory": "a", "name": "x", "version": "1"}', "is not a version"),
        ('{"directory": "a", "name": "x", "rank": 8}', "unknown key 'rank'"),
        ('{"directory": "a", "name": "x", "meta": 1}', "expected an object"),
        ('{"directory": "a", "name": "x", "context": 0}', "an integer from 1"),
        ('{"directory": "a", "name": "x", "allow_pickle": 1}', "true or false"),
        ('{"directory": "a", "name": "x", "base_fingerprint": "sha256:1"}', "not a digest"),
        ('{"directory": "a", "name": "x", "name": "y"}', "stands twice"),
        ('{"directory": "' + "a" * (1 << 20) + '", "name": "x"}', "at most 1048576 are read"),
    ],
)
def test_a_line_that_means_nothing_is_named(tmp_path, text, message):
    path = tmp_path / "batch.jsonl"
    path.write_text(text)

    with pytest.raises(FormatError, match=r"batch\.jsonl") as caught:
        read_batch(path, DEFAULTS)
    assert message in caught.value.message


def test_a_batch_needs_a_file_and_a_foundation(registry, tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_batch(tmp_path / "nothing", DEFAULTS)
    path = listed(tmp_path, {"directory": "a", "name": "x"})
    with pytest.raises(FormatError, match="no foundation"):
        read_batch(path, replace(DEFAULTS, foundation=""))
    with pytest.raises(NotFound, match="no foundation 'other'"):
        list(publish_batch(registry, read_batch(path, replace(DEFAULTS, foundation="other"))))


def test_the_command_answers_one_summary(home, many):
    said = answer(home, "adapter", "publish", "--batch", many, "--foundation", "plain", "--meta", "owner=ann")

    assert (said["version"], said["build"], said["unchanged"]) == (40, 0, 0)
    assert said["per_second"] > 0
    assert [each["line"] for each in said["adapters"]] == list(range(1, 41))
    first = said["adapters"][0]
    assert (first["name"], first["version"], first["outcome"]) == ("n0", "1.0.0", "version")
    shown = answer(home, "adapter", "show", "n0@1.0.0")
    assert (first["digest"], first["warnings"]) == (shown["digest"], shown["warnings"])
    assert shown["lineage"] == {"owner": "ann"}
    done = ptdock(home, "adapter", "publish", "--batch", many, "--foundation", "plain")
    assert "done: 40 unchanged in" in done.stdout
    assert "and 20 more" in done.stdout
    assert "checking 40 adapters" in done.stderr


def test_the_command_refuses_the_whole_batch_with_4(home, many, tmp_path):
    shutil.rmtree(tmp_path / "a7")

    done = ptdock(home, "adapter", "publish", "--batch", many, "--foundation", "plain", "--json")

    assert done.exit_code == 4
    (finding,) = json.loads(done.stdout)["error"]["values"]["findings"]
    assert (finding["line"], finding["subject"]) == (8, "line 8 (n7)")


@pytest.mark.parametrize("words", [("a",), ("--name", "x"), ("--version", "1.0.0"), ("--prove",)])
def test_what_a_line_says_is_not_said_for_all(home, many, words):
    error = refusal(home, "adapter", "publish", "--batch", many, "--foundation", "plain", *words, code=2)
    assert "not with --batch" in error["message"]


def test_without_a_batch_all_of_one_adapter_is_needed(home, tmp_path):
    for words in ((), (tmp_path,), (tmp_path, "--name", "x"), ("--name", "x", "--foundation", "plain")):
        assert "or --batch FILE" in refusal(home, "adapter", "publish", *words, code=2)["message"]


MEMORY = """
import sys
from dataclasses import replace
from pathlib import Path
from exporter.batch import publish_batch
from exporter.batch_file import read_batch
from exporter.publish import PublishOptions
from registry.service import Registry
registry = Registry.open(Path(sys.argv[1]))
entries = read_batch(Path(sys.argv[2]), PublishOptions(foundation="plain", name=""))
for number, done in enumerate(publish_batch(registry, entries), 1):
    if number in (40, 240):
        print(peak())
"""


def test_memory_does_not_grow_with_the_batch(home, tmp_path):
    write_adapter(tmp_path / "a", 1)
    lines = []
    for number in range(240):
        shutil.copytree(tmp_path / "a", tmp_path / f"a{number}")
        (tmp_path / f"a{number}" / "README.md").write_text("x" * 50_000 + str(number))
        lines.append({"directory": f"a{number}", "name": f"n{number}"})

    early, late = map(int, run_script(MEMORY, home, listed(tmp_path, *lines)))

    assert late - early < 6_000, "kB; the attachments alone are 10 MB"


def test_every_digest_is_of_what_is_stored(registry, many):
    run(registry, many)

    for blob in registry.blobs.descriptors():
        assert Digest.of(registry.blobs.path(blob.digest).read_bytes()) == blob.digest
