"""The verbs that keep a store whole, from outside: gc, repair, trace, save and load."""

import shutil
from pathlib import Path

import pytest

from registry.service import Registry
from tests.command_line import answer, ptdock


@pytest.fixture
def home(stocked_home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stocked_home, tmp_path / "home"))


def orphan(home: Path, data: bytes = b"orphan") -> dict:
    return Registry.open(home).blobs.put_bytes(data).to_json()


def test_a_dry_run_says_of_each_blob_what_keeps_it_or_why_it_goes(home):
    loose = orphan(home)

    found = answer(home, "gc", "--dry-run")
    text = ptdock(home, "gc", "--dry-run").stdout

    assert (found["dry_run"], found["grace_seconds"], found["unfinished"]) == (True, 86400, [])
    going = [each for each in found["objects"] if each["kept_by"] is None]
    reason = "nothing refers to it; it was never recorded"
    assert going == [{**loose, "kept_by": None, "goes": reason, "condemned_at": None}]
    assert len(found["objects"]) == len(list(Registry.open(home).blobs.descriptors()))
    assert f"goes  {loose['digest']}        6 B  {reason}" in text
    assert "the program of pirate@1.0.0" in text
    assert answer(home, "gc", "--dry-run") == found, "a dry run changes nothing"


def test_gc_condemns_and_after_the_grace_deletes(home):
    loose = orphan(home)

    assert answer(home, "gc")["condemned"] == [loose]
    again = answer(home, "gc", "--grace", "2h")
    assert (again["condemned"], again["waiting"], again["deleted"]) == ([], [loose], [])
    (going,) = [each for each in answer(home, "gc", "--dry-run")["objects"] if each["goes"]]
    assert going["goes"].startswith("nothing refers to it; condemned at 20")

    last = answer(home, "gc", "--grace", "0")

    assert last["deleted"] == [loose]
    assert last["kept"] == len(list(Registry.open(home).blobs.descriptors()))
    assert answer(home, "verify")["clean"]


def test_gc_says_what_it_did_in_words(home):
    orphan(home)

    assert "condemned  1 blob (6 B), to be deleted in 24 h" in ptdock(home, "gc").stdout
    assert "deleted  1 blob (6 B)" in ptdock(home, "gc", "--grace", "0").stdout


def test_the_grace_comes_from_the_environment_too_and_must_be_a_time(home):
    loose = orphan(home)

    assert ptdock(home, "gc", env={"PTDOCK_GC_GRACE": "0"}).exit_code == 0
    assert loose["digest"] not in {each["digest"] for each in answer(home, "gc", "--dry-run")["objects"]}
    assert ptdock(home, "gc", "--grace", "soon").exit_code == 2


def test_an_empty_store_has_an_empty_list(tmp_path):
    Registry.init(tmp_path / "empty")

    assert answer(tmp_path / "empty", "gc", "--dry-run")["objects"] == []
