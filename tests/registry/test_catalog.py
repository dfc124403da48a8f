from collections.abc import Iterator
from dataclasses import replace

import pytest

from registry.artifacts import Source
from registry.catalog import content, foundations
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError, NotFound
from tests.registry.files import Pair
from tests.registry.places import Place
from tests.registry.stock import Stock, structure


@pytest.fixture(scope="module")
def stock(stocked_place: Place, pair: Pair) -> Iterator[Stock]:
    """Read only, so it is not copied."""
    stock = stocked_place.stock(pair)
    yield stock
    stock.registry.database.close()


@pytest.fixture
def fresh(place: Place, pair: Pair) -> Stock:
    return place.stock(pair)


def test_a_base_is_read_as_it_was_recorded(fresh):
    base = fresh.base()

    assert fresh.registry.base(Digest.of(b"base")) == base
    assert base.files["tokenizer.json"] == Descriptor.of(b"tokenizer of base")
    assert fresh.registry.bases() == (base,)


def test_a_foundation_is_read_as_it_was_recorded_by_name_and_by_digest(fresh, pair):
    foundation = fresh.foundation("f1")

    assert foundation.file == Descriptor.of(pair.foundation.read_bytes())
    assert [tensor.offset for tensor in foundation.tensors] == sorted(tensor.offset for tensor in foundation.tensors)
    assert len(foundation.tensors) == 3
    for ref in ("f1", str(foundation.file.digest), foundation.file.digest):
        assert fresh.registry.foundation(ref) == foundation


def test_a_template_is_read_as_it_was_recorded(fresh):
    foundation = fresh.foundation("f1")
    template = fresh.template(foundation, rank=8)

    found = fresh.registry.find_template(foundation.file.digest, structure(8), 512, 1, "1.5.1")

    assert found == template
    assert fresh.registry.templates(foundation.file.digest) == (template,)


@pytest.mark.parametrize(
    "changes", [{"structure": structure(4)}, {"context": 256}, {"graph": 2}, {"executorch": "1.6.0"}]
)
def test_each_part_of_a_templates_key_counts(stock, changes):
    key = {"structure": structure(8), "context": 512, "graph": 1, "executorch": "1.5.1"}
    foundation = stock.registry.foundation("f1").file.digest

    assert stock.registry.find_template(foundation, **key) is not None
    assert stock.registry.find_template(foundation, **(key | changes)) is None
    assert stock.registry.find_template(Digest.of(b"another"), **key) is None


def test_two_templates_may_be_the_same_program(fresh):
    """A module that is dead in the graph, or another ExecuTorch, need not change a byte."""
    foundation = fresh.foundation("f1")
    template = fresh.template(foundation)

    newer = fresh.registry.add_template(replace(template, executorch="1.5.2"))

    assert newer.digest == template.digest
    assert fresh.registry.templates(foundation.file.digest) == (template, newer)


def test_a_version_its_source_and_its_build_are_read_as_they_were_recorded(stock):
    version, build = stock.registry.version("pirate@1.0.0"), stock.registry.build("pirate@1.0.0")

    assert (version.adapter, version.version, version.lineage, version.yanked) == (
        "pirate",
        "1.0.0",
        {"run": "arr"},
        None,
    )
    assert version.created == "2026-05-28T20:26:40.000000Z"
    assert stock.registry.source(version) == stock.source("arr")
    assert version.source == stock.source("arr").digest
    assert build.file == Descriptor.of(stock.registry.blobs.read(build.file.digest))
    assert stock.registry.blobs.read(build.factors.digest) == stock.factors(
        int.from_bytes(Digest.of(b"arr").raw[:3], "big")
    )
    assert build.warnings == ("base not pinned",)
    assert stock.registry.template_of(build).structure == structure(8)
    assert stock.registry.builds("pirate@1.0.0") == (build,)


def test_the_source_list_is_a_blob_too(stock):
    source = stock.source("arr")

    assert stock.registry.blobs.read(source.digest) == source.to_bytes()


def test_attachments_are_no_part_of_what_was_trained():
    files = {"adapter_config.json": Descriptor.of(b"{}")}

    assert Source(files, {}).digest == Source(files, {"README.md": Descriptor.of(b"read me")}).digest


def test_versions_stand_in_the_order_of_semver(fresh):
    template = fresh.template(fresh.foundation("f1"))
    for number in ("1.10.0", "1.2.0", "2.0.0-rc.1", "1.2.0-rc.2", "1.2.0-rc.10"):
        fresh.publish("pirate", template, number, number)

    found = [version.version for version in fresh.registry.versions("pirate")]

    assert found == ["1.2.0-rc.2", "1.2.0-rc.10", "1.2.0", "1.10.0", "2.0.0-rc.1"]
    assert fresh.registry.version("pirate").version == "2.0.0-rc.1"


def test_a_recipe_leads_back_to_its_foundation_on_its_base(fresh):
    foundation = fresh.foundation("f1")

    assert fresh.registry.find_foundation(foundation.base, foundation.recipe) == foundation
    assert fresh.registry.find_foundation(Digest.of(b"other base"), foundation.recipe) is None
    assert fresh.registry.find_foundation(foundation.base, {"quantization": "8da4w"}) is None


def test_several_recipes_may_lead_to_one_foundation(fresh):
    foundation = fresh.foundation("f1")
    other = {"quantization": "none", "executorch": "1.5.2"}

    again = fresh.registry.add_foundation(replace(foundation, recipe=other), "f1")

    assert again == foundation
    assert fresh.registry.find_foundation(foundation.base, other) == foundation
    assert fresh.registry.foundations() == (foundation,)
    with fresh.registry.database.read() as session:
        assert set(map(str, foundations.recipes(session, foundation.file.digest))) == {
            str(foundation.recipe),
            str(dict(sorted(other.items()))),
        }


@pytest.mark.parametrize(
    ("ask", "message", "hint"),
    [
        (lambda r: r.foundation("f2"), "no foundation 'f2'", "known foundations: f1"),
        (lambda r: r.foundation(Digest.of(b"x")), "no foundation 'sha256:", "known foundations: f1"),
        (lambda r: r.base(Digest.of(b"x")), "no base sha256:", "foundation export"),
        (lambda r: r.versions("robot"), "no adapter 'robot'", "known adapters: json, pirate"),
        (lambda r: r.version("robot@1.0.0"), "no adapter 'robot'", "known adapters: json, pirate"),
        (lambda r: r.version("pirate@9.0.0"), "no version 9.0.0 of 'pirate'", "known versions: 1.0.0"),
        (lambda r: r.build("pirate@1.0.0", Digest.of(b"x")), "no foundation", "known foundations: f1"),
        (lambda r: r.channel("beta"), "no channel 'beta'", "known channels: stable"),
        (lambda r: r.manifest("stable"), "channel 'stable' offers nothing yet", "release create --channel stable"),
        (lambda r: r.release(7), "no release 7", "there is none yet"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(stock, ask, message, hint):
    with pytest.raises(NotFound, match=message) as caught:
        ask(stock.registry)

    assert hint in caught.value.hint


@pytest.mark.parametrize("ref", ["sha256:xyz", "sha256:" + "A" * 64])
def test_half_a_digest_is_an_input_error(stock, ref):
    with pytest.raises(InputError, match="not a digest"):
        stock.registry.foundation(ref)


def test_a_blob_that_is_not_in_the_store_is_not_referred_to(fresh):
    base = fresh.base()
    fresh.registry.blobs.delete(Digest.of(b"{}"))

    with pytest.raises(NotFound, match="the store holds no blob"):
        fresh.registry.add_base(replace(base, fingerprint=Digest.of(b"second")))

    assert fresh.registry.bases() == (base,)


def test_a_blob_of_another_size_is_not_referred_to(fresh):
    base = fresh.base()
    lying = Descriptor(base.tensors.digest, base.tensors.size + 1)

    with pytest.raises(IntegrityError, match=f"has {base.tensors.size} bytes in the store, not {lying.size}"):
        fresh.registry.add_base(replace(base, fingerprint=Digest.of(b"second"), tensors=lying))


def test_everything_that_refers_to_a_blob_is_named(stock):
    build = stock.registry.build("pirate@1.0.0")

    with stock.registry.database.read() as session:
        assert content.users(session, build.file.digest) == ("builds: pirate 1.0.0",)
        assert content.users(session, Digest.of(b"about arr")) == ("attachments: pirate 1.0.0",)
        assert len(content.users(session, Digest.of(b"{}"))) == 5  # and json's tensors
        assert content.users(session, Digest.of(b"unknown")) == ()


def test_a_registry_that_is_opened_again_has_everything(stock, stocked_place):
    again = stocked_place.open()

    assert again.uuid == stock.registry.uuid
    assert again.adapters() == ("json", "pirate")
    assert again.foundations() == stock.registry.foundations()
    assert again.foundation_names() == {"f1": again.foundation("f1").file.digest}
    assert again.channels() == stock.registry.channels()
