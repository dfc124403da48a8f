"""Archives: what one registry saves another takes in, whole, checked, and twice for once."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import canonical
from registry.archive.contents import Contents
from registry.archive.document import from_bytes, to_bytes
from registry.archive.saving import select
from registry.archive.tar import open_members
from registry.blobs import open_source
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, FormatError, InputError, IntegrityError, NotFound, PtdockError
from registry.formats.ptd import read_ptd
from registry.links import foundation_tensors
from registry.manifest import Manifest
from registry.service import Registry
from tests.command_line import answer, ptdock, refusal
from tests.registry.crashes import in_a_child, killing
from tests.registry.files import NamedData, Pair, PtdFile
from tests.registry.stock import NOW, Stock, copied

Members = dict[str, bytes]


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    """`f1` and `f2`; pirate on both, json on `f1`, robot through another template of `f2`."""
    stock = copied(stocked_home, tmp_path / "home", pair)
    second = stock.foundation("f2", other=1)
    stock.template(second, rank=0)
    stock.publish("pirate", stock.template(second), "arr")
    stock.publish("robot", stock.template(second, rank=16), "beep")
    return stock


@pytest.fixture
def other(empty_home: Path, tmp_path: Path) -> Registry:
    shutil.copytree(empty_home, tmp_path / "other")
    return Registry.open(tmp_path / "other", actor="receiver", clock=lambda: NOW + 3600)


@pytest.fixture
def archive(stock: Stock, tmp_path: Path) -> Path:
    """Everything."""
    stock.registry.keeper().save(tmp_path / "all.tar")
    return tmp_path / "all.tar"


def contents(registry: Registry, *refs: str, named: tuple[str, ...] = ()) -> Contents:
    with registry.database.read() as session:
        return select(session, refs, named)


def held(registry: Registry) -> dict[str, Any]:
    """What a registry knows, but for when and from where."""
    return {
        "bases": [replace(base, hint="") for base in registry.bases()],
        "foundations": list(registry.foundations()),
        "names": dict(registry.foundation_names()),
        "templates": {each.file.digest: registry.templates(each.file.digest) for each in registry.foundations()},
        "versions": [
            (replace(version, created=""), registry.source(version), registry.builds(f"{name}@{version.version}"))
            for name in registry.adapters()
            for version in registry.versions(name)
        ],
    }


def test_everything_that_is_saved_is_taken_in_as_it_was(stock, other, archive):
    loaded = other.keeper().load(archive)

    assert held(other) == held(stock.registry)
    assert loaded.added == {
        "bases": 1,
        "foundations": 2,
        "templates": 5,
        "versions": 3,
        "builds": 4,
        "proofs": 0,
    }
    assert loaded.notes == ()
    assert other.verify().clean
    other.create_channel("stable")
    other.create_release("stable", ["pirate@1.0.0"])
    assert len(other.release(1).lines) == 2


def test_a_foundation_with_tied_weights_is_taken_in(stock, other, tmp_path):
    """Its file lists an embedding and the head that shares the embedding's bytes far apart."""
    plain, data = stock.foundation("f1"), PtdFile([NamedData("z", 0), NamedData("b", 1), NamedData("a", 0)]).bytes()
    tied = replace(
        plain, file=stock.registry.blobs.put_bytes(data), tensors=foundation_tensors(read_ptd(data), data, {})
    )
    stock.registry.add_foundation(tied, "tied")
    stock.registry.keeper().save(tmp_path / "tied.tar", [], ["tied"])

    assert other.keeper().load(tmp_path / "tied.tar").added["foundations"] == 1
    assert other.foundation("tied") == tied
    assert other.verify().clean


def test_taking_in_twice_is_taking_in_once(other, archive):
    other.keeper().load(archive)
    before = other.events(), held(other), set(other.blobs.descriptors())

    again = other.keeper().load(archive)

    assert (other.events(), held(other), set(other.blobs.descriptors())) == before
    assert set(again.added.values()) == {0}


def test_equal_contents_give_equal_bytes(stock, archive, tmp_path):
    stock.registry.keeper().save(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()


def test_the_answer_is_the_files_digest_and_size(stock, tmp_path):
    _, file = stock.registry.keeper().save(tmp_path / "a.tar")

    assert file == Descriptor.of((tmp_path / "a.tar").read_bytes())


def test_a_selection_brings_every_link_and_nothing_else(stock, other, tmp_path):
    stock.registry.keeper().save(tmp_path / "json.tar", ["json"])

    other.keeper().load(tmp_path / "json.tar")

    first = stock.registry.foundation("f1")
    assert other.adapters() == ("json",)
    assert other.foundations() == (first,)
    assert other.templates(first.file.digest) == stock.registry.templates(first.file.digest)
    assert other.verify().clean
    assert other.builds("json@1.0.0") == stock.registry.builds("json@1.0.0")


def test_a_foundation_can_travel_alone_and_its_adapters_follow(stock, other, tmp_path):
    stock.registry.keeper().save(tmp_path / "f2.tar", named=["f2"])
    stock.registry.keeper().save(tmp_path / "robot.tar", ["robot@1.0.0"])

    other.keeper().load(tmp_path / "f2.tar")
    assert (other.adapters(), len(other.foundations())) == ((), 1)
    added = other.keeper().load(tmp_path / "robot.tar").added

    assert (added["foundations"], added["templates"], added["versions"], added["builds"]) == (0, 0, 1, 1)
    assert other.build("robot") == stock.registry.build("robot")


def test_what_is_withdrawn_comes_withdrawn(stock, other, tmp_path):
    stock.registry.yank("json@1.0.0", "too loud")
    stock.registry.revoke("pirate@1.0.0", "leaks", "f1")
    stock.registry.keeper().save(tmp_path / "a.tar")

    other.keeper().load(tmp_path / "a.tar")

    assert other.version("json@1.0.0").yanked == "too loud"
    # The program on both foundations is the same, so it was revoked on both.
    assert [build.revoked for build in other.builds("pirate@1.0.0")] == ["leaks", "leaks"]
    assert other.verify().clean


def test_what_was_here_before_is_not_withdrawn_by_a_file_but_told(stock, other, archive, tmp_path):
    other.keeper().load(archive)
    stock.registry.yank("json@1.0.0", "too loud")
    stock.registry.revoke("robot@1.0.0", "leaks")
    stock.registry.keeper().save(tmp_path / "a.tar")

    notes = other.keeper().load(tmp_path / "a.tar").notes

    assert notes == (
        "json@1.0.0 is yanked in the archive (too loud), not here",
        "robot@1.0.0 is revoked in the archive (leaks), not here: revoke it?",
    )
    assert other.version("json@1.0.0").yanked is None


def test_a_program_that_comes_revoked_is_revoked_under_every_name_that_it_has_here(stock, other, archive, tmp_path):
    """Devices know a program by its digest alone."""
    other.keeper().load(archive)
    other.create_channel("beta")
    other.create_release("beta", ["robot@1.0.0"], lines=["f2"])
    template = stock.registry.template_of(stock.registry.build("robot"))
    stock.publish("android", template, "beep")
    stock.registry.revoke("android@1.0.0", "leaks")
    stock.registry.keeper().save(tmp_path / "a.tar", ["android"])

    loaded = other.keeper().load(tmp_path / "a.tar")

    assert loaded.notes == (
        "robot@1.0.0 is the same program as android@1.0.0, which comes revoked (leaks): so is it now",
        "channel beta has a new manifest, which revokes android@1.0.0",
    )
    program = stock.registry.builds("android")[0].file.digest
    assert [build.revoked for ref in ("robot@1.0.0", "android@1.0.0") for build in other.builds(ref)] == ["leaks"] * 2
    assert Manifest.from_bytes(other.manifest("beta")).revoked == (program,)
    assert (other.site / "targets/v1/beta.json").read_bytes() == other.manifest("beta")
    event = next(event for event in other.events() if event.action == "adapter.revoke")
    assert (event.subject, event.after) == ("android@1.0.0", {"reason": "leaks", "builds": [str(program)]})
    assert other.verify().clean
    assert other.keeper().load(tmp_path / "a.tar").notes == ()


def test_proofs_travel(stock, other, tmp_path):
    registry = stock.registry
    document, test = registry.blobs.put_bytes(b"proof"), registry.blobs.put_bytes(b"self-test")
    registry.add_proof(registry.build("json"), document, test)
    registry.keeper().save(tmp_path / "a.tar", ["json"])

    assert other.keeper().load(tmp_path / "a.tar").added["proofs"] == 1
    assert other.keeper().load(tmp_path / "a.tar").added["proofs"] == 0

    proof = other.proof(other.build("json"))
    assert (proof.document, proof.self_test) == (document, test)
    assert other.build("json").parts["self_test"] == test


def test_a_proof_without_a_self_test_travels_too(stock, other, tmp_path):
    registry = stock.registry
    registry.add_proof(registry.build("json"), registry.blobs.put_bytes(b"proof"), registry.blobs.put_bytes(b"test"))
    document = registry.blobs.put_bytes(b"a newer proof")
    registry.add_proof(registry.build("json"), document, None)
    registry.keeper().save(tmp_path / "a.tar", ["json"])

    assert other.keeper().load(tmp_path / "a.tar").added["proofs"] == 2

    proof = other.proof(other.build("json"))
    assert (proof.document, proof.self_test) == (document, None)
    assert "self_test" not in other.build("json").parts
    assert other.verify().clean


def test_a_name_that_means_another_foundation_here_stays(stock, other, archive, pair):
    Stock(other, pair).foundation("f1", other=9)
    mine = other.foundation("f1").file.digest

    notes = other.keeper().load(archive).notes

    theirs = stock.registry.foundation("f1").file.digest
    assert notes == (f"f1 means another foundation here: {theirs} goes without that name",)
    assert other.foundation("f1").file.digest == mine
    assert other.builds("json@1.0.0")[0].foundation == theirs


def test_a_version_of_another_source_here_refuses_the_whole_archive(other, archive, pair):
    mine = Stock(other, pair)
    mine.publish("robot", mine.template(mine.foundation("mine", other=9)), "another robot")
    before = other.events(), held(other)

    with pytest.raises(Conflict, match=r"robot@1\.0\.0 is immutable"):
        other.keeper().load(archive)

    assert (other.events(), held(other)) == before
    assert other.verify().clean


def test_a_damaged_blob_is_not_saved(stock, tmp_path):
    path = stock.registry.blobs.path(stock.registry.build("json").factors.digest)
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))

    with pytest.raises(IntegrityError, match="is damaged"):
        stock.registry.keeper().save(tmp_path / "a.tar")

    assert list(tmp_path.glob("*.tar")) == []


def test_what_is_not_there_cannot_be_saved(stock, tmp_path):
    keeper = stock.registry.keeper()
    for refs, named in ((["nobody"], []), (["json@9.9.9"], []), ([], ["nothing"])):
        with pytest.raises(NotFound):
            keeper.save(tmp_path / "a.tar", refs, named)
    with pytest.raises(InputError, match="cannot be a file"):
        keeper.save(tmp_path / "nowhere" / "a.tar")


def unpacked(path: Path) -> Members:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def packed(members: Members, path: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in more:
            tar.addfile(info)
    return path


def blob(data: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def rewritten(archive: Path, path: Path, change: Callable[[dict[str, Any], Members], None]) -> Path:
    """The archive with a changed document, its manifest and index made to fit: only the contents are wrong."""
    members = unpacked(archive)
    index = json.loads(members["index.json"])
    manifest = json.loads(members.pop("blobs/sha256/" + index["manifests"][0]["digest"][7:]))
    document = json.loads(members.pop("blobs/sha256/" + manifest["config"]["digest"][7:]))
    change(document, members)
    for entry, value in ((manifest["config"], document), (index["manifests"][0], manifest)):
        data = canonical.dumps(value)
        members[blob(data)] = data
        entry.update(Descriptor.of(data).to_json())
    members["index.json"] = canonical.dumps(index)
    return packed(members, path)


def test_an_archive_that_others_packed_again_is_taken_in(archive, other, tmp_path):
    """GNU tar writes directories and `./` in front; bsdtar and Go write extended headers."""
    members = {f"./{name}": data for name, data in unpacked(archive).items()}
    with tarfile.open(tmp_path / "again.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("./", "./blobs", "./blobs/sha256"):
            directory = tarfile.TarInfo(name)
            directory.type = tarfile.DIRTYPE
            tar.addfile(directory)
        for name, data in reversed(members.items()):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {"comment": "grüße"}
            tar.addfile(info, io.BytesIO(data))

    assert other.keeper().load(tmp_path / "again.tar").added["versions"] == 3
    assert other.verify().clean


def refuse(registry: Registry, path: Path) -> PtdockError:
    """The error with which an archive is refused; nothing of it is recorded, nothing outside of the store written."""
    before = registry.events()
    there = set(registry.home.parent.iterdir())
    with pytest.raises((FormatError, IntegrityError, InputError)) as caught:
        registry.keeper().load(path)
    assert registry.events() == before
    assert set(registry.home.parent.iterdir()) == there
    assert not Path("/evil").exists()
    assert list(registry.home.glob("work-*")) == []
    assert registry.verify().clean
    return caught.value


@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "blobs/sha256/../../evil", "blobs/sha256/" + "A" * 64, "evil", "blobs/sha512/x"]
)
def test_a_member_of_another_name_refuses_the_archive(archive, other, tmp_path, name):
    path = packed(unpacked(archive) | {name: b"evil"}, tmp_path / "bad.tar")

    assert "does not belong into an archive" in refuse(other, path).message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_plain_file_refuses_the_archive(archive, other, tmp_path, kind):
    info = tarfile.TarInfo("blobs/sha256/" + "0" * 64)
    info.type, info.linkname = kind, "/etc/passwd"

    assert "does not belong" in refuse(other, packed(unpacked(archive), tmp_path / "bad.tar", info)).message


def test_a_member_that_stands_twice_refuses_the_archive(archive, other, tmp_path):
    members = unpacked(archive)
    for name in ("index.json", blob(b"{}")):
        info = tarfile.TarInfo(name)
        assert "stands in it twice" in refuse(other, packed(members, tmp_path / "bad.tar", info)).message


def test_a_header_that_claims_a_huge_size_costs_no_memory(archive, other, tmp_path):
    data = bytearray(archive.read_bytes())
    for kind in (b"x", b"L", b"g"):  # an extended header, a long name
        info = tarfile.TarInfo("././@PaxHeader")
        info.size, info.type = 1 << 40, kind
        (tmp_path / "bad.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + data)
        assert "a header of" in refuse(other, tmp_path / "bad.tar").message


def test_a_flipped_byte_is_always_found(archive, other, tmp_path):
    """One in the middle of every member's bytes."""
    data = archive.read_bytes()
    with tarfile.open(archive) as tar:
        places = [member.offset_data + member.size // 2 for member in tar]
    for number, place in enumerate(places):
        flipped = bytearray(data)
        flipped[place] ^= 4
        (tmp_path / "bad.tar").write_bytes(bytes(flipped))
        fresh = Registry.open(Path(shutil.copytree(other.home, tmp_path / f"fresh-{number}")))
        if number:
            with pytest.raises((FormatError, IntegrityError)):
                fresh.keeper().load(tmp_path / "bad.tar")
            assert held(fresh) == held(other)
        else:  # the layout's version says nothing about us
            assert fresh.keeper().load(tmp_path / "bad.tar").added["builds"] == 4
    assert len(places) > 20


def test_an_archive_that_was_cut_is_refused(archive, other, tmp_path):
    data = archive.read_bytes()
    for length in (0, 100, 512, 600, 5000, len(data) // 2, len(data) - 2000):
        (tmp_path / "bad.tar").write_bytes(data[:length])
        assert refuse(other, tmp_path / "bad.tar").hint


@pytest.mark.parametrize("data", [b"hello", b"\x1f\x8b" + bytes(600), b"PK\x03\x04" + bytes(600), bytes(10240)])
def test_a_file_of_another_kind_is_refused(other, tmp_path, data):
    (tmp_path / "bad.tar").write_bytes(data)

    refuse(other, tmp_path / "bad.tar")


def test_a_missing_file_is_refused(other, tmp_path):
    assert "is not a readable file" in refuse(other, tmp_path / "nothing.tar").message
    assert "is not a readable file" in refuse(other, tmp_path).message


def lie(*path: str | int, value: object) -> Callable[[dict[str, Any], Members], None]:
    def change(document: dict[str, Any], _members: Members) -> None:
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return change


SOME = str(Digest.of(b"{}"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lie("schema", value=2), "upgrade ptdock"),
        (lie("critical", value=["more"]), "upgrade ptdock"),
        (lie("versions", 0, "adapter", value="../up"), "is not a usable adapter name"),
        (lie("versions", 0, "version", value="1"), "is not a version"),
        (lie("versions", 0, "files", value={"../up": {"digest": SOME, "size": 2}}), "is no name of a file"),
        (lie("versions", 0, "attachments", value={"a/b": {"digest": SOME, "size": 2}}), "is no name of a file"),
        (lie("versions", 0, "attachments", value={"initial/": {"digest": SOME, "size": 2}}), "is no name of a file"),
        (lie("versions", 0, "lineage", value={"run": {"a": 1}}), "lineage"),
        (lie("builds", 0, "template", value=99), "its template is not"),
        (lie("builds", 0, "adapter", value="nobody"), "its version is not"),
        (lie("builds", 0, "factors", "size", value=127), "bytes"),
        (lie("templates", 0, "foundation", value=SOME), "its foundation is not"),
        (lie("foundations", 0, "base", value=SOME), "its base is not"),
        (lie("foundations", 0, "names", value=["UP"]), "is not a usable foundation name"),
        (lie("foundations", 0, "recipes", value=[]), "at least one recipe"),
        (lie("bases", 0, "fingerprint", value=SOME), "fingerprint is the digest of its tensor table"),
        (lie("registry", value="\x1b[2J"), "printable"),
        (lie("templates", 1, "hollow", "digest", value=str(Digest.of(b"nothing"))), "is missing"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(archive, other, tmp_path, change, message):
    error = refuse(other, rewritten(archive, tmp_path / "bad.tar", change))

    assert message in f"{error.message} {error.hint}"


def swap(noun: str, field: str, one: int, two: int) -> Callable[[dict[str, Any], Members], None]:
    def change(document: dict[str, Any], _members: Members) -> None:
        entries = document[noun]
        entries[one][field], entries[two][field] = entries[two][field], entries[one][field]

    return change


def retold(document: dict[str, Any], _members: Members) -> None:
    document["foundations"][0]["tensors"][0]["digest"] = SOME


def forged(document: dict[str, Any], members: Members) -> None:
    """Factors of the right size under their own digest, so that only the program knows better."""
    data = b"\x07" * document["builds"][0]["factors"]["size"]
    members[blob(data)] = data
    document["builds"][0]["factors"] = Descriptor.of(data).to_json()


def renamed_key(document: dict[str, Any], _members: Members) -> None:
    document["foundations"][0]["tensors"].reverse()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap("builds", "file", 0, 1), "is not its template with its factors"),
        (swap("builds", "factors", 0, 1), "is not its template with its factors"),
        (forged, "is not its template with its factors"),
        (swap("templates", "hollow", 1, 4), "the template's program has"),
        (retold, "is not that of its bytes"),
        (renamed_key, "is not that of its bytes"),
    ],
)
def test_links_that_do_not_hold_are_refused(archive, other, tmp_path, change, message):
    assert message in refuse(other, rewritten(archive, tmp_path / "bad.tar", change)).message


def test_a_load_that_is_killed_at_any_step_leaves_a_clean_registry_and_succeeds_when_repeated(other, tmp_path, stock):
    json_only = tmp_path / "json.tar"
    stock.registry.keeper().save(json_only, ["json"])
    steps: list[int] = []
    for after in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
        home = Path(shutil.copytree(other.home, tmp_path / f"try-{after}"))
        code = in_a_child(lambda home=home: Registry.open(home).keeper().load(json_only), killing(after))
        report = Registry.open(home).verify()
        assert report.clean, report.damage
        steps.append(code)
        Registry.open(home).keeper().load(json_only)
        assert Registry.open(home).adapters() == ("json",)
        assert Registry.open(home).verify().clean
    assert steps[0] == -9
    assert steps[-1] == 0


@given(st.binary(max_size=2000))
def test_any_bytes_are_a_document_or_a_format_error(data):
    try:
        from_bytes(data)
    except FormatError:
        return
    raise AssertionError("no bytes of chance are an archive's document")


def test_a_document_reads_back_as_it_was_written(stock):
    before = contents(stock.registry)

    again = from_bytes(to_bytes(before))

    assert to_bytes(again) == to_bytes(before)
    assert again.builds == tuple(replace(saved, build=saved.build) for saved in before.builds)
    assert again.blobs() == before.blobs()


def test_the_file_is_an_image_layout_that_oci_tools_can_read(archive):
    members = unpacked(archive)
    index = json.loads(members["index.json"])
    (entry,) = index["manifests"]
    manifest = json.loads(members["blobs/sha256/" + entry["digest"][7:]])

    assert json.loads(members["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert manifest["artifactType"] == "application/vnd.ptdock.archive.v1"
    named = {entry["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
    assert {f"blobs/sha256/{digest[7:]}" for digest in named} == members.keys() - {"oci-layout", "index.json"}
    for digest in named:
        assert str(Digest.of(members[f"blobs/sha256/{digest[7:]}"])) == digest


def test_members_are_found_without_being_read(archive):
    with open_source(archive) as file:
        members = open_members(file, archive)
        found = Descriptor(Digest.of(b"{}"), 2)
        assert found in members
        assert Descriptor(Digest.of(b"{}"), 3) not in members
        assert b"".join(members.chunks(found.digest)) == b"{}"


def test_the_commands_save_and_load(stock, other, tmp_path):
    path = tmp_path / "pirate.tar"

    saved = answer(stock.registry.home, "save", path, "pirate")
    loaded = answer(other.home, "load", path)

    assert (saved["digest"], saved["size"]) == (str(Digest.of_file(path)), path.stat().st_size)
    assert (saved["versions"], saved["builds"], saved["foundations"]) == (1, 2, 2)
    assert loaded["registry"] == stock.registry.uuid
    assert loaded["added"]["builds"] == 2
    assert answer(other.home, "adapter", "list")[0]["name"] == "pirate"
    assert ptdock(other.home, "load", path).stdout == "everything in it was here already\n"
    text = ptdock(stock.registry.home, "save", path, "--foundation", "f2").stdout
    assert "1 base, 1 foundation, 3 templates" in text
    (tmp_path / "bad.tar").write_bytes(b"bad")
    assert "not a tar archive" in refusal(other.home, "load", tmp_path / "bad.tar", code=2)["message"]
