"""Foundations of an older ExecuTorch, upgraded to the installed one. The older store is a real one, written otherwise.

No second ExecuTorch can be installed beside the first, and its neighbours give the very same bytes (1.4.1 does). So
what "1.4.1" left here are the files of the installed one under that version, where needed with sixteen zeros behind
their last segment, which nothing points to: other bytes that run.
"""

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.recipe import installed_versions
from registry.artifacts import Template
from registry.device_state import DeviceState
from registry.digest import Digest
from registry.formats.ptd import read_ptd
from registry.manifest import Manifest
from registry.plan import plan
from registry.release import ReleaseDocument
from registry.relink import pack, unpack
from registry.relocation import RelocationTable
from registry.service import Registry
from tests.command_line import answer, ptdock, refusal
from tests.exporter.test_families import TOKENS
from tests.runtime import prefill_and_decode

OLD = "1.4.1"
NEW = installed_versions()["executorch"]
PADDING = bytes(16)
NEXT = tuple(int(part) for part in NEW.split(".")[:2])


def older(home: Path, new: Registry, *, file: bytes = b"", program: bytes = b"") -> Registry:
    """A store in `home` with what `new` has on `plain`, as ExecuTorch 1.4.1 would have left it."""
    registry = Registry.init(home, actor="tester")
    put, read = registry.blobs.put_bytes, new.blobs.read
    found = new.foundation("plain")
    base = new.base(found.base)
    for blob in (base.tensors, base.prompt, found.modules, *base.files.values()):
        put(read(blob.digest))
    registry.add_base(base)
    recipe = {**found.recipe, "libraries": {**found.recipe["libraries"], "executorch": OLD}}
    foundation = replace(found, file=put(longer(read(found.file.digest), file)), recipe=recipe)
    assert len(read_ptd(registry.blobs.read(foundation.file.digest)).entries) == len(found.tensors)
    registry.add_foundation(foundation, "plain")
    for each in new.templates(found.file.digest):
        template = registry.add_template(_template(registry, new, each, foundation.file.digest, program))
        _builds(registry, new, each, template, program)
    return registry


def longer(data: bytes, padding: bytes) -> bytes:
    """A `.ptd` or `.pte` with a longer last segment; its header, which is alike in both from here on, says so."""
    at = 8 + 4 + 4 + 8 + (8 if data[4:8] == b"FT01" else 0) + 8
    (size,) = struct.unpack_from("<Q", data, at)
    return data[:at] + struct.pack("<Q", size + len(padding)) + data[at + 8 :] + padding


def _template(registry: Registry, new: Registry, like: Template, foundation: Digest, padding: bytes) -> Template:
    put, blob = registry.blobs.put_bytes, new.blobs.read(like.hollow.digest)
    table = RelocationTable.from_bytes(new.blobs.read(like.table.digest))
    table = replace(table, program_size=like.program_size + len(padding))
    empty = not like.structure["modules"]
    hollow = longer(blob if empty else unpack(blob, like.program_size), padding)
    return replace(
        like,
        digest=Digest.of(hollow),
        foundation=foundation,
        executorch=OLD,
        hollow=put(hollow if empty else pack(hollow)),
        table=put(table.to_bytes()),
        program_size=len(hollow),
        runtime=replace(like.runtime, minimum=(1, 4), guaranteed=(1, 5)),
    )


def _builds(registry: Registry, new: Registry, like: Template, template: Template, padding: bytes) -> None:
    put, read = registry.blobs.put_bytes, new.blobs.read
    for ref in ("pirate@1.0.0", "json@1.0.0"):
        build, version = new.build(ref), new.version(ref)
        if build.template != like.digest:
            continue
        source = new.source(version)
        for blob in (*source.files.values(), *source.attachments.values(), *build.parts.values()):
            put(read(blob.digest))
        registry.publish(
            version.adapter,
            version.version,
            source,
            template=template,
            file=put(longer(read(build.file.digest), padding)),
            factors=put(read(build.factors.digest)),
            lineage=version.lineage,
            parts=build.parts,
        )


def offer(registry: Registry) -> None:
    registry.create_channel("stable")
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])


@pytest.fixture(scope="session")
def installed(offering_home: Path) -> Registry:
    """The store of the installed ExecuTorch, whose files an upgrade has to arrive at."""
    return Registry.open(offering_home / "home", actor="tester")


@pytest.fixture(scope="session")
def upgraded_home(made_once: Callable[[str, Callable[[Path], None]], Path], installed: Registry) -> Path:
    """`home` is an older store that was upgraded; `before` is what it was."""

    def make(directory: Path) -> None:
        offer(older(directory / "before", installed, program=PADDING))
        home = Path(shutil.copytree(directory / "before", directory / "home"))
        done = ptdock(home, "foundation", "upgrade", "plain")
        (directory / "said.txt").write_text(done.stdout + done.stderr)

    return made_once("upgraded-home", make)


@pytest.fixture
def home(upgraded_home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(upgraded_home / "home", tmp_path / "home"))


@pytest.fixture
def registry(home: Path) -> Registry:
    return Registry.open(home, actor="tester")


def test_every_build_gets_the_program_that_the_installed_executorch_makes(
    upgraded_home: Path, registry: Registry, installed: Registry
) -> None:
    foundation = installed.foundation("plain").file
    assert registry.foundation("plain").file == foundation
    for ref in ("pirate@1.0.0", "json@1.0.0"):
        old, new = registry.builds(ref)
        assert new.file == installed.build(ref).file
        assert old.file != new.file
        assert registry.template_of(old).executorch == OLD
        assert registry.template_of(new).executorch == NEW
        assert registry.build(ref) == new
        assert [each.version for each in registry.versions(new.adapter)] == ["1.0.0"]
    said = (upgraded_home / "said.txt").read_text()
    assert said.startswith(f"plain upgraded from ExecuTorch {OLD} to {NEW}\n")
    assert f"{foundation.digest}, 82.2 kB: kept, its bytes came out the same" in said
    assert "builds      2 built\n" in said


def test_old_and_new_program_of_a_build_answer_alike_on_the_one_foundation(registry: Registry) -> None:
    foundation = registry.blobs.path(registry.foundation("plain").file.digest)
    old, new = (registry.blobs.path(build.file.digest) for build in registry.builds("pirate@1.0.0"))
    assert prefill_and_decode(old, foundation, TOKENS).equal(prefill_and_decode(new, foundation, TOKENS))


def test_an_upgrade_that_is_done_does_nothing(home: Path, registry: Registry) -> None:
    events = len(registry.events())
    again = answer(home, "foundation", "upgrade", "plain")
    assert (again["kept"], again["built"], again["unchanged"]) == (True, 0, 2)
    assert [(each["before"], each["executorch"], each["made"]) for each in again["templates"]] == [
        (OLD, NEW, "known"),
        (OLD, NEW, "known"),
    ]
    assert len(registry.events()) == events


def test_an_upgrade_that_was_stopped_goes_on_where_it_was(upgraded_home: Path, tmp_path: Path) -> None:
    """Stopped after the templates and the first build: what an upgrade of the whole store has is put in so far."""
    whole = Registry.open(upgraded_home / "home")
    home = Path(shutil.copytree(upgraded_home / "before", tmp_path / "home"))
    registry = Registry.open(home)
    for each in whole.templates(whole.foundation("plain").file.digest):
        for blob in (each.hollow, each.table):
            registry.blobs.put_bytes(whole.blobs.read(blob.digest))
        registry.add_template(each)
    new, version = whole.build("json@1.0.0"), whole.version("json@1.0.0")
    chosen = {"template": whole.template_of(new), "file": new.file, "factors": new.factors, "parts": new.parts}
    registry.blobs.put_bytes(whole.blobs.read(new.file.digest))
    registry.publish("json", "1.0.0", whole.source(version), **chosen)

    said = answer(home, "foundation", "upgrade", "plain")
    assert [(each["name"], each["outcome"]) for each in said["adapters"]] == [
        ("json", "unchanged"),
        ("pirate", "built"),
    ]
    assert registry.build("pirate@1.0.0").file == whole.build("pirate@1.0.0").file


def test_what_nobody_should_run_is_not_brought_along(upgraded_home: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(upgraded_home / "home", tmp_path / "home"))
    registry = Registry.open(home)
    registry.yank("json@1.0.0", "too curt")
    registry.revoke("pirate@1.0.0", "leaks")
    said = answer(home, "foundation", "upgrade", "plain")
    assert [(each["name"], each["outcome"], each["reason"]) for each in said["adapters"]] == [
        ("json", "skipped", "yanked: too curt"),
        ("pirate", "skipped", "revoked: leaks"),
    ]


def device(version: str) -> DeviceState:
    return DeviceState(id="phone", executorch=version)


def planned(registry: Registry, state: DeviceState):
    manifest = Manifest.from_bytes(registry.manifest("stable"))
    documents = {pin.file.digest: registry.blobs.read(pin.file.digest) for pin in manifest.releases}
    releases = {digest: ReleaseDocument.from_bytes(data) for digest, data in documents.items()}
    return plan([manifest], releases, state, now=manifest.issued)


def test_a_release_after_an_upgrade_is_for_the_new_apps_and_old_ones_keep_theirs(
    home: Path, registry: Registry
) -> None:
    assert [each.set.release for each in planned(registry, device("1.4.1")).activate] == [1]
    done = ptdock(home, "release", "create", "--channel", "stable", "--base", "live")
    needs = f"release 2 needs ExecuTorch {NEXT[0]}.{NEXT[1]}"
    assert f"warning: {needs}: devices with 1.4 keep release 1, and those that have nothing get nothing" in done.stderr
    line = answer(home, "release", "show", 2)["lines"][0]
    assert line["requires"]["executorch"] == {"min": list(NEXT), "guaranteed": [NEXT[0], NEXT[1] + 1]}
    assert [each["digest"] for each in line["adapters"]] == [
        str(registry.build(ref).file.digest) for ref in ("json@1.0.0", "pirate@1.0.0")
    ]

    assert [each.set.release for each in planned(registry, device(NEW)).activate] == [2]
    refused = planned(registry, device("1.4.1"))
    assert (refused.activate, refused.deactivate) == ((), ())
    assert [each.code for each in refused.refused] == ["no-line"]

    answer(home, "channel", "create", "stable-1.4")
    answer(home, "release", "promote", "--from", "stable", "--to", "stable-1.4", "--release", 1)
    manifest = Manifest.from_bytes(registry.manifest("stable-1.4"))
    document = ReleaseDocument.from_bytes(registry.blobs.read(manifest.releases[0].file.digest))
    served = plan([manifest], {manifest.releases[0].file.digest: document}, device("1.4.1"), now=manifest.issued)
    assert [each.set.release for each in served.activate] == [1]


def test_programs_whose_bytes_come_out_the_same_serve_old_and_new_apps(installed: Registry, tmp_path: Path) -> None:
    registry = older(tmp_path / "home", installed)
    before = registry.build("pirate@1.0.0")
    said = answer(registry.home, "foundation", "upgrade", "plain")
    assert {each["made"] for each in said["templates"]} == {"same"}
    assert (said["built"], said["unchanged"]) == (0, 2)
    assert registry.builds("pirate@1.0.0") == (before,)

    offer(registry)
    line = answer(registry.home, "release", "show", 1)["lines"][0]
    assert line["requires"]["executorch"] == {"min": [1, 4], "guaranteed": [NEXT[0], NEXT[1] + 1]}
    export = answer(
        registry.home,
        "foundation",
        "export",
        registry.base(registry.foundation("plain").base).hint,
        "--name",
        "plain",
        "--context",
        64,
    )
    assert export["fresh"] is False


def test_another_ptd_is_refused_or_takes_the_name_when_that_is_asked_for(installed: Registry, tmp_path: Path) -> None:
    registry = older(tmp_path / "home", installed, file=PADDING, program=PADDING)
    offer(registry)
    old = registry.foundation("plain").file.digest
    events = len(registry.events())
    error = refusal(registry.home, "foundation", "upgrade", "plain", code=6)
    assert error["message"] == (
        f"ExecuTorch {NEW} makes another .ptd of this checkpoint than plain: the same tensors in another layout"
    )
    assert "--replace-name" in error["hint"]
    assert len(registry.events()) == events

    said = answer(registry.home, "foundation", "upgrade", "plain", "--replace-name")
    assert (said["kept"], said["before"], said["built"]) == (False, str(old), 2)
    assert said["digest"] == str(installed.foundation("plain").file.digest)
    assert registry.foundation("plain").file == installed.foundation("plain").file
    for ref in ("pirate@1.0.0", "json@1.0.0"):
        assert [build.foundation for build in registry.builds(ref)] == [old, registry.foundation("plain").file.digest]
        assert registry.build(ref).file == installed.build(ref).file
    nameless = refusal(registry.home, "foundation", "upgrade", old, code=2)
    assert "has no name any more" in nameless["message"]


def test_a_checkpoint_that_is_gone_is_asked_for(installed: Registry, tmp_path: Path) -> None:
    registry = older(tmp_path / "home", installed)
    base = registry.base(registry.foundation("plain").base)
    registry.add_base(replace(base, hint=str(tmp_path / "gone")))
    error = refusal(registry.home, "foundation", "upgrade", "plain", code=5)
    assert error["hint"] == "say where it is now: --base DIR"


def test_a_foundation_of_the_installed_executorch_is_up_to_date(tiny_store: Path) -> None:
    done = ptdock(tiny_store, "foundation", "upgrade", "plain")
    assert done.stdout == f"plain is up to date: ExecuTorch {NEW} made all of its programs\n"
