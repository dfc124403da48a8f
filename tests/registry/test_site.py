"""The static tree: what channels offer and nothing else, in an order that no reader can trip over."""

import pytest

from registry import files
from registry.blobs import LocalStore
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, FormatError, NotFound
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import AdapterEntry, Factors, FoundationEntry, Line, ReleaseDocument, Requires, Tokenizer
from registry.site import Directory, blob_path, publish, tree

NOW = 1_780_000_000
UUID = "123e4567-e89b-42d3-a456-426614174000"


class World:
    """A store with two releases that share a foundation, and a directory to publish to."""

    def __init__(self, home):
        self.blobs = LocalStore.create(home)
        self.site = Directory(home / "site")
        self.put = self.blobs.put_bytes
        self.foundation, self.base = self.put(b"foundation"), self.put(b"base")
        self.first = self.release(1, {"pirate": "1.0.0"})
        self.second = self.release(2, {"pirate": "1.1.0", "json": "1.0.0"})
        self.put(b"never released")

    def entry(self, name, version):
        label = f"{name} {version}".encode()
        parts = Factors(self.put(label + b" factors"), self.put(b"template"), self.put(b"table"))
        return AdapterEntry(name, version, self.put(label), self_test=self.put(label + b" test"), factors=parts)

    def release(self, number, adapters):
        entries = tuple(self.entry(*each) for each in adapters.items())
        tokenizer = Tokenizer("hf-json", self.put(b"tokenizer"))
        line = Line(FoundationEntry(self.foundation), self.base, Requires((1, 5), (1, 6)), entries, tokenizer)
        return ReleasePin(number, self.put(ReleaseDocument(number, (line,)).to_bytes()))

    def manifest(self, *releases, channel="stable", sequence=1, expires=NOW + 10, revoked=(), registry=UUID):
        arms = (Arm(releases[0].release, 10_000),)
        document = Manifest(registry, channel, sequence, NOW - 10, expires, 60, "0" * 32, arms, releases, revoked)
        return document.to_bytes()

    def publish(self, current, earlier=(), now=NOW):
        return publish(tree(current, earlier, self.blobs.read, now=now), self.site, self.blobs)

    def files(self):
        root = self.site.root
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def expected(self, manifests, texts, releases):
        """The paths of a tree that serves these manifests, the blobs of these bytes and these releases."""
        paths = {f"targets/{Digest.of(data).hex}.stable.json" for data in manifests} | {"targets/v1/stable.json"}
        digests = [Digest.of(text) for text in texts] + [each.file.digest for each in releases]
        return paths | {blob_path(digest) for digest in digests}


FIRST = [
    b"foundation",
    b"base",
    b"tokenizer",
    b"pirate 1.0.0",
    b"pirate 1.0.0 test",
    b"pirate 1.0.0 factors",
    b"template",
    b"table",
]
SECOND = [text.replace(b"pirate 1.0.0", b"pirate 1.1.0") for text in FIRST] + [
    b"json 1.0.0",
    b"json 1.0.0 test",
    b"json 1.0.0 factors",
]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_tree_holds_what_the_manifest_offers_and_nothing_else(world):
    data = world.manifest(world.first)
    changes = world.publish([data])
    assert world.files() == world.expected([data], FIRST, [world.first]) == set(changes.written)
    assert (world.site.root / "targets/v1/stable.json").read_bytes() == data
    assert (world.site.root / blob_path(world.foundation.digest)).read_bytes() == b"foundation"


def test_blobs_are_the_store_s_own_files_and_read_only(world):
    world.publish([world.manifest(world.first)])
    served = world.site.root / blob_path(world.foundation.digest)
    assert served.samefile(world.blobs.path(world.foundation.digest))
    assert served.stat().st_mode & 0o777 == 0o444


def test_publishing_again_changes_nothing(world):
    data = world.manifest(world.first)
    world.publish([data])
    steps = []
    with files.observed(steps.append):
        assert world.publish([data]).written == ()
    assert steps == []


def test_a_change_touches_only_what_changed(world):
    first = world.manifest(world.first)
    world.publish([first])
    kept = (world.site.root / blob_path(world.foundation.digest)).stat()
    second = world.manifest(world.second, world.first, sequence=2)
    changes = world.publish([second], [first])
    new = set(SECOND) - set(FIRST)
    assert set(changes.written) == {
        *(blob_path(Digest.of(text)) for text in new),
        blob_path(world.second.file.digest),
        f"targets/{Digest.of(second).hex}.stable.json",
        "targets/v1/stable.json",
    }
    assert changes.removed == ()
    assert (world.site.root / blob_path(world.foundation.digest)).stat() == kept


def test_an_earlier_manifest_is_served_until_it_expires(world):
    first, second = world.manifest(world.first), world.manifest(world.second, sequence=2, expires=NOW + 99)
    world.publish([first])
    world.publish([second], [first], now=NOW + 10)
    assert world.files() == world.expected([first, second], {*FIRST, *SECOND}, [world.first, world.second])
    world.publish([second], [first], now=NOW + 11)
    assert world.files() == world.expected([second], SECOND, [world.second])


def test_the_newest_manifest_is_served_even_when_it_has_expired(world):
    data = world.manifest(world.first)
    world.publish([data], now=NOW + 1000)
    assert world.files() == world.expected([data], FIRST, [world.first])


def test_a_revoked_build_is_not_served(world):
    revoked = (Digest.of(b"json 1.0.0"),)
    data = world.manifest(world.second, revoked=revoked)
    world.publish([data])
    gone = {b"json 1.0.0", b"json 1.0.0 test", b"json 1.0.0 factors"}
    assert world.files() == world.expected([data], set(SECOND) - gone, [world.second])


def test_what_is_written_appears_before_what_points_to_it_and_goes_after(world):
    first, second = world.manifest(world.first), world.manifest(world.second, sequence=2)
    world.publish([first])
    steps = []
    with files.observed(steps.append):
        world.publish([second], [])
    order = [
        str((step.target or step.path).relative_to(world.site.root))
        for step in steps
        if step.operation in {"link", "rename", "unlink"}
    ]
    shown = [path for path in order if "." in path or path.startswith("blobs")]
    new_blobs = {blob_path(Digest.of(text)) for text in set(SECOND) - set(FIRST)}
    release, pinned = blob_path(world.second.file.digest), f"targets/{Digest.of(second).hex}.stable.json"
    old = f"targets/{Digest.of(first).hex}.stable.json"
    assert set(shown[: len(new_blobs)]) == new_blobs
    assert shown[len(new_blobs) : len(new_blobs) + 4] == [release, pinned, "targets/v1/stable.json", old]
    assert {*shown[len(new_blobs) + 4 :]} == {
        blob_path(world.first.file.digest),
        *(blob_path(Digest.of(text)) for text in set(FIRST) - set(SECOND)),
    }


def test_a_crash_at_any_step_leaves_a_tree_that_readers_can_follow(world):
    first, second = world.manifest(world.first), world.manifest(world.second, sequence=2)
    steps = []
    world.publish([first])
    with files.observed(steps.append):
        world.publish([second])
    for stop in range(0, len(steps), 3):
        world.site = Directory(world.site.root.with_name(f"site-{stop}"))
        world.publish([first])
        with pytest.raises(KeyboardInterrupt), files.observed(crash_at(stop)):
            world.publish([second])
        followable(world.site.root)
    world.publish([second])
    assert world.files() == world.expected([second], SECOND, [world.second])


def crash_at(stop):
    """An observer that ends everything at a step."""
    left = stop

    def step(_step):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    return step


def followable(root):
    served = Manifest.from_bytes((root / "targets/v1/stable.json").read_bytes())
    for pin in served.releases:
        data = (root / blob_path(pin.file.digest)).read_bytes()
        for blob in ReleaseDocument.from_bytes(data).blobs():
            assert Descriptor.of((root / blob_path(blob.digest)).read_bytes()) == blob


def test_files_of_another_layout_are_left_alone(world):
    root = world.site.root
    for path in ("index.html", "targets/notes.txt", "blobs/sha256/README", "targets/v1/hooks.d/x.json"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("mine")
    data = world.manifest(world.first)
    world.publish([data])
    others = world.files() - world.expected([data], FIRST, [world.first])
    assert others == {"index.html", "targets/notes.txt", "blobs/sha256/README", "targets/v1/hooks.d/x.json"}


def test_a_channel_that_is_gone_is_withdrawn(world):
    world.publish([world.manifest(world.first), world.manifest(world.second, channel="beta")])
    removed = world.publish([world.manifest(world.first)]).removed
    assert removed[0] == "targets/v1/beta.json"
    assert not any("beta" in path for path in world.files())


def test_a_store_behind_what_is_published_stops_before_anything_is_written(world):
    world.publish([world.manifest(world.first, sequence=5)])
    before = world.files()
    with pytest.raises(Conflict, match="sequence 5 is published, this store is at 4") as caught:
        world.publish([world.manifest(world.second, sequence=4)])
    assert "channel advance stable" in caught.value.hint
    assert world.files() == before


def test_another_history_under_the_same_sequence_stops_too(world):
    world.publish([world.manifest(world.first, sequence=5)])
    with pytest.raises(Conflict, match="sequence 5 is published, this store is at 5"):
        world.publish([world.manifest(world.second, sequence=5)])


def test_another_registry_s_tree_is_not_overwritten(world):
    world.publish([world.manifest(world.first)])
    other = "00000000-0000-4000-8000-000000000000"
    with pytest.raises(Conflict, match=f"registry {UUID} is published there, this one is {other}"):
        world.publish([world.manifest(world.first, sequence=2, registry=other)])


def test_a_damaged_manifest_in_the_tree_is_replaced(world):
    data = world.manifest(world.first)
    world.publish([data])
    path = world.site.root / "targets/v1/stable.json"
    path.chmod(0o644)
    path.write_bytes(data[:50])
    world.publish([data])
    assert path.read_bytes() == data


def test_a_repaired_blob_replaces_the_damaged_file_in_the_tree(world):
    data = world.manifest(world.first)
    world.publish([data])
    inside = world.blobs.path(world.base.digest)
    inside.chmod(0o644)
    inside.write_bytes(b"BASE")
    inside.unlink()  # what a repair does: the damaged file goes, the right bytes come
    world.put(b"base")
    world.publish([data])
    assert (world.site.root / blob_path(world.base.digest)).read_bytes() == b"base"


def test_a_blob_that_the_store_lacks_is_named(world):
    world.blobs.delete(world.base.digest)
    with pytest.raises(NotFound, match=world.base.digest.hex):
        world.publish([world.manifest(world.first)])
    assert not (world.site.root / "targets").exists()


def test_a_blob_is_copied_where_it_cannot_be_linked(world, tmp_path_factory):
    other = tmp_path_factory.mktemp("other", numbered=True)
    elsewhere = Directory(other / "site")

    def no_links(step):
        if step.operation == "link" and step.path.parent.name == "sha256":
            raise OSError(18, "Invalid cross-device link")

    built = tree([world.manifest(world.first)], [], world.blobs.read, now=NOW)
    with files.observed(no_links):
        publish(built, elsewhere, world.blobs)
    served = elsewhere.root / blob_path(world.foundation.digest)
    assert served.read_bytes() == b"foundation"
    assert not served.samefile(world.blobs.path(world.foundation.digest))
    assert served.stat().st_mode & 0o777 == 0o444


def test_a_release_that_is_not_one_is_refused(world):
    junk = ReleasePin(9, world.put(b"{}"))
    with pytest.raises(FormatError, match="'schema' is missing"):
        world.publish([world.manifest(junk)])
