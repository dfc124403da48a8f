import shutil
from pathlib import Path

import pytest

from exporter.repair import repair
from exporter.stored import compare, laid_out
from registry.digest import Digest
from registry.errors import IntegrityError
from registry.service import Registry
from tests.care.adapters import write_adapter
from tests.command_line import answer, ptdock


def damage(registry: Registry, digest: Digest) -> None:
    """Flip a bit in the middle of a blob."""
    path = registry.blobs.path(digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def lose(registry: Registry, digest: Digest) -> None:
    registry.blobs.path(digest).unlink()


@pytest.fixture
def build(registry):
    return registry.build("pirate@1.0.0")


@pytest.fixture
def off_site(registry):
    """No copies in the site: what is lost has to be made again."""
    shutil.rmtree(registry.site)


@pytest.mark.usefixtures("off_site")
@pytest.mark.parametrize("harm", [damage, lose])
def test_a_program_is_relinked_to_the_very_same_bytes(registry, build, harm):
    before = registry.blobs.read(build.file.digest)
    harm(registry, build.file.digest)

    done = repair(registry)

    assert [each.how for each in done.mended] == ["relinked from its template and its factors"]
    assert done.lost == ()
    assert registry.blobs.read(build.file.digest) == before
    assert registry.verify().clean


@pytest.mark.usefixtures("off_site")
def test_programs_templates_factors_and_tables_follow_from_each_other(registry, build):
    """Each of them is lost alone, and made again from the others."""
    template = registry.template_of(build)
    parts = {**build.parts, "factors": build.factors, "hollow": template.hollow, "table": template.table}
    said = {}

    for role, file in parts.items():
        damage(registry, file.digest)
        done = repair(registry)
        assert done.lost == (), role
        said[role] = done.mended[0].how

    assert said == {
        "factors": "read out of pirate@1.0.0",
        "hollow": "emptied from pirate@1.0.0",
        "table": "read out of the wire table of pirate@1.0.0",
        "wire": "made again from the source of pirate@1.0.0",
        "wire_table": "made again from the source of pirate@1.0.0",
    }
    assert registry.verify().clean


@pytest.mark.usefixtures("off_site")
def test_what_was_mended_mends_more(registry, build):
    """Program, factors and wire form are gone: the source gives all of them back, in whatever order."""
    source = registry.source(registry.version("pirate@1.0.0"))
    lost = [build.file, build.factors, *build.parts.values()]
    for file in lost:
        lose(registry, file.digest)
    lose(registry, source.digest)

    done = repair(registry, fast=True)

    assert {each.digest for each in done.mended} == {source.digest, *(file.digest for file in lost)}
    assert registry.verify().clean


def test_what_channels_offer_is_found_in_the_site(registry):
    release, foundation = registry.release(1).document.digest, registry.foundation("plain").file.digest
    manifest = Digest.of(registry.manifest("stable"))
    for digest in (release, foundation, manifest):
        damage(registry, digest)

    done = repair(registry)

    assert {(each.digest, each.how) for each in done.mended} == {
        (digest, f"found in {registry.site}") for digest in (release, foundation, manifest)
    }
    assert registry.verify().clean


def test_a_damaged_copy_is_not_believed(registry, build):
    for root in (registry.home, registry.site):
        path = root / "blobs" / "sha256" / build.file.digest.hex
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    (mended,) = repair(registry).mended

    assert mended.how == "relinked from its template and its factors"


@pytest.mark.usefixtures("off_site")
def test_another_store_gives_back_what_only_it_has(registry, offering_home):
    model = registry.source(registry.version("pirate@1.0.0")).files["adapter_model.safetensors"]
    lose(registry, model.digest)

    done = repair(registry, places=[offering_home / "home"])

    assert [each.how for each in done.mended] == [f"found in {offering_home / 'home'}"]
    assert registry.verify().clean


@pytest.mark.usefixtures("off_site")
def test_a_base_is_read_again_from_its_checkpoint(registry, bases):
    base = registry.base(registry.foundation("plain").base)
    for digest in (base.files["config.json"].digest, base.tensors.digest):
        lose(registry, digest)

    said = {each.digest: each.how for each in repair(registry).mended}

    assert said[base.files["config.json"].digest] == f"found in {bases / 'plain'}"
    assert said[base.tensors.digest] == f"read from {bases / 'plain'}"
    assert registry.verify().clean


@pytest.mark.usefixtures("off_site")
def test_a_checkpoint_that_moved_is_named(registry, bases, tmp_path):
    base = registry.base(registry.foundation("plain").base)
    moved = shutil.copytree(bases / "plain", tmp_path / "moved")
    registry.add_base(type(base)(base.fingerprint, base.tensors, base.files, "/nowhere", base.prompt))
    lose(registry, base.tensors.digest)

    assert repair(registry, base=moved).mended[0].how == f"read from {moved}"


@pytest.mark.usefixtures("off_site")
def test_what_cannot_be_made_again_is_named_with_what_needs_it_and_set_aside(registry):
    model = registry.source(registry.version("pirate@1.0.0")).files["adapter_model.safetensors"]
    damage(registry, model.digest)
    left = registry.blobs.path(model.digest).read_bytes()

    (lost,) = repair(registry).lost

    assert lost.damage.subject == str(model.digest)
    assert lost.damage.dependants == ("the source of pirate@1.0.0",)
    assert lost.aside == registry.home / "damaged" / model.digest.hex
    assert lost.aside.read_bytes() == left
    assert registry.blobs.size(model.digest) is None


@pytest.mark.usefixtures("off_site")
def test_what_was_set_aside_comes_back_when_it_is_published_again(registry, offering_home):
    model = registry.source(registry.version("pirate@1.0.0")).files["adapter_model.safetensors"]
    damage(registry, model.digest)
    repair(registry)

    again = answer(
        registry.home, "adapter", "publish", offering_home / "pirate", "--foundation", "plain", "--name", "pirate"
    )

    assert again["outcome"] == "unchanged"
    assert registry.verify().clean


def test_a_repair_of_a_sound_store_does_nothing(registry):
    before = registry.events()

    done = repair(registry)

    assert (done.mended, done.lost) == ((), ())
    assert registry.events() == before


@pytest.mark.usefixtures("off_site")
def test_a_repair_is_in_the_log(registry, build):
    lose(registry, build.file.digest)
    repair(registry)

    event = registry.events(1)[0]

    assert (event.action, event.subject) == ("store.repair", str(build.file.digest))
    assert event.after == "relinked from its template and its factors"


def test_the_command_mends_and_says_so(registry, build, home):
    damage(registry, build.file.digest)
    damage(registry, registry.foundation("plain").modules.digest)
    (home / "site" / "blobs" / "sha256" / build.file.digest.hex).unlink()

    done = ptdock(home, "repair")

    assert done.exit_code == 7
    assert f"mended  {build.file.digest}: relinked from its template and its factors" in done.stdout
    assert "lost    " in done.stdout
    (lost,) = answer_of(home, code=7)["lost"]
    assert lost["digest"] == str(registry.foundation("plain").modules.digest)
    assert lost["message"] == "the blob is missing from the store"
    assert (home / "site" / "blobs" / "sha256" / build.file.digest.hex).samefile(registry.blobs.path(build.file.digest))


def answer_of(home: Path, *, code: int) -> dict:
    import json

    done = ptdock(home, "repair", "--json")
    assert done.exit_code == code
    return json.loads(done.stdout)


def test_the_command_has_nothing_to_mend(home):
    assert answer(home, "repair") == {"mended": [], "lost": []}
    assert ptdock(home, "repair", "--fast").stdout == "nothing to mend\n"


def test_a_stored_source_is_laid_out_as_it_was_published(registry, offering_home):
    with laid_out(registry, registry.version("pirate@1.0.0")) as (directory, gate):
        there = {path.name: path.read_bytes() for path in directory.iterdir()}
        assert (gate.allow_pickle, gate.adapter_name, gate.initial) == (False, None, None)

    published = {path.name: path.read_bytes() for path in (offering_home / "pirate").iterdir()}
    assert there == published
    assert not directory.exists()


def test_a_build_is_made_again_byte_for_byte(registry, build, home):
    found = compare(registry, build, rebuild_too=True)

    assert found.sound
    assert found.rebuilt == {
        "program": build.file.digest,
        "factors": build.factors.digest,
        **{role: file.digest for role, file in build.parts.items()},
    }
    said = answer(home, "adapter", "verify", "pirate@1.0.0", "--rebuild")
    assert said["sound"]
    assert said["digest"] == said["rebuilt"]["program"] == str(build.file.digest)
    assert any("base not pinned" in finding["message"] for finding in said["findings"])
    text = ptdock(home, "adapter", "verify", "pirate@1.0.0", "--rebuild").stdout
    assert text == f"sound: pirate@1.0.0 is {build.file.digest}, made again byte for byte\n"
    assert answer(home, "adapter", "verify", "json")["rebuilt"] is None


def test_a_damaged_file_of_a_version_is_named(registry, build, home):
    source = registry.source(registry.version("pirate@1.0.0"))
    damage(registry, source.attachments["README.md"].digest)
    lose(registry, build.factors.digest)

    done = ptdock(home, "adapter", "verify", "pirate@1.0.0", "--rebuild")

    assert done.exit_code == 7
    assert "differs  factors: the store holds no blob" in done.stdout
    assert "differs  README.md: its bytes have the digest" in done.stdout


def test_a_build_that_is_not_what_its_source_gives_is_found(registry, build):
    """Someone swapped the source under a version; what is recorded of the build stays what it was."""
    other = registry.source(registry.version("json@1.0.0")).digest
    connection = registry.database.engine.raw_connection()
    connection.execute("DROP TRIGGER versions_refuse_update")
    connection.execute("UPDATE versions SET source = ? WHERE adapter = 'pirate'", [str(other)])
    connection.commit()
    connection.close()

    found = compare(registry, build, rebuild_too=True)

    assert [fault.split()[1] for fault in found.faults] == ["factors", "program", "wire"]
    assert not found.sound


def test_a_version_from_several_in_a_file_remembers_which(registry, tmp_path):
    from safetensors.numpy import load_file, save_file

    source = write_adapter(tmp_path / "two", 7, wide=True)
    tensors = load_file(source / "adapter_model.safetensors")
    other = load_file(write_adapter(tmp_path / "other", 8, wide=True) / "adapter_model.safetensors")
    both = {name.replace(".weight", ".first.weight"): value for name, value in tensors.items()}
    both |= {name.replace(".weight", ".second.weight"): value for name, value in other.items()}
    save_file(both, source / "adapter_model.safetensors")

    words = ("adapter", "publish", source, "--foundation", "plain", "--name", "two", "--adapter-name", "second")
    made = answer(registry.home, *words)

    assert made["lineage"]["adapter_name"] == "second"
    assert compare(registry, registry.build("two"), rebuild_too=True).sound


def test_a_name_that_leaves_the_directory_is_refused(registry):
    connection = registry.database.engine.raw_connection()
    connection.execute("DROP TRIGGER attachments_refuse_update")
    connection.execute("UPDATE attachments SET name = '../out' WHERE adapter = 'pirate'")
    connection.commit()
    connection.close()

    with pytest.raises(IntegrityError, match="is no name of a file"), laid_out(registry, registry.version("pirate")):
        pass
    assert not (registry.home / "out").exists()
