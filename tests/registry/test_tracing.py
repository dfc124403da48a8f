import re
from dataclasses import replace
from pathlib import Path

import pytest

from registry.catalog.offers import Span
from registry.digest import Digest
from registry.errors import NotFound
from registry.service import Registry
from registry.tracing import Trace
from tests.command_line import answer, ptdock, refusal
from tests.registry.files import Pair
from tests.registry.stock import NOW, Stock, copied


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    """`stable` offered pirate 1.0.0, then 1.0.1, then 1.0.0 again, an hour between them."""
    stock = copied(stocked_home, tmp_path / "home", pair)
    template = stock.registry.templates(stock.registry.foundation("f1").file.digest)[1]
    stock.publish("pirate", template, "avast")
    at(stock.registry, 0).create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    at(stock.registry, 1).create_release("stable", ["pirate@1.0.1", "json@1.0.0"])
    at(stock.registry, 2).create_release("stable", ["pirate@1.0.0"])
    return stock


@pytest.fixture
def registry(stock: Stock) -> Registry:
    return stock.registry


def at(registry: Registry, hours: int) -> Registry:
    return Registry.open(registry.home, actor="ann", clock=lambda: NOW + 3600 * hours)


def trace(registry: Registry, ref: str | Digest) -> Trace:
    return registry.keeper().trace(ref)


def whole(sequence: int, release: int, until: int | None) -> Span:
    """One of stable's manifests, which offered one release to everyone for an hour."""
    since = NOW + 3600 * (sequence - 1)
    expires = since + 30 * 86400
    return Span("stable", release, 10000, "open", (sequence, sequence), since, until, expires)


FIRST, SECOND, THIRD = whole(1, 1, NOW + 3600), whole(2, 2, NOW + 7200), whole(3, 3, None)


def test_a_version_knows_its_source_its_lineage_and_who_was_offered_it(registry):
    found = trace(registry, "pirate@1.0.0")

    (origin,) = found.origins
    assert found.roles == ("the version pirate@1.0.0",)
    assert origin.version == registry.version("pirate@1.0.0")
    assert origin.version.lineage == {"run": "arr"}
    assert origin.source == registry.source(origin.version)
    assert origin.build == registry.build("pirate@1.0.0")
    assert origin.template == registry.template_of(origin.build)
    assert origin.foundation == registry.foundation("f1")
    assert origin.base == registry.base(Digest.of(b"base"))
    assert found.offers == (FIRST, THIRD)
    assert [event.action for event in found.events] == ["adapter.publish"]


def test_every_file_of_a_version_leads_to_it_and_to_its_releases(registry):
    version = registry.version("pirate@1.0.1")
    build, source = registry.build("pirate@1.0.1"), registry.source(version)
    roles = {
        build.file.digest: "the program of pirate@1.0.1",
        build.factors.digest: "the factors of pirate@1.0.1",
        version.source: "the source of pirate@1.0.1",
        source.files["adapter_model.safetensors"].digest: "the source of pirate@1.0.1",
        source.attachments["README.md"].digest: "an attachment of pirate@1.0.1",
    }

    for digest, role in roles.items():
        found = trace(registry, digest)
        assert found.roles == (role,)
        assert [origin.version for origin in found.origins] == [version]
        assert found.offers == (SECOND,)


def test_a_file_of_several_versions_leads_to_all_of_them(registry):
    """Both adapters have the same config; the base has it too."""
    found = trace(registry, Digest.of(b"{}"))

    assert {f"{o.version.adapter}@{o.version.version}" for o in found.origins if o.version} == {
        "pirate@1.0.0",
        "pirate@1.0.1",
        "json@1.0.0",
    }
    assert found.offers == (FIRST, SECOND, THIRD)


def test_a_foundation_and_what_belongs_to_it_lead_to_every_line_on_it(registry):
    foundation = registry.foundation("f1")
    program = registry.templates(foundation.file.digest)[0]

    for digest, role in (
        (foundation.file.digest, "foundation f1"),
        (program.hollow.digest, "a template of foundation f1"),
        (
            registry.base(foundation.base).files["tokenizer.json"].digest,
            f"a file of base {foundation.base} tokenizer.json",
        ),
    ):
        found = trace(registry, digest)
        assert role in found.roles
        assert found.offers == (FIRST, SECOND, THIRD)
    assert [origin.foundation for origin in trace(registry, foundation.file.digest).origins] == [foundation]


def test_a_template_leads_to_the_releases_of_what_went_through_it(stock, registry):
    other = stock.template(registry.foundation("f1"), rank=16)
    stock.publish("robot", other, "beep")
    at(registry, 3).create_channel("beta")
    at(registry, 3).create_release("beta", ["robot@1.0.0"])

    found = trace(registry, other.table.digest)

    assert [(span.channel, span.release) for span in found.offers] == [("beta", 4)]
    assert [origin.template for origin in found.origins] == [other]


def test_documents_lead_to_what_they_offered(registry):
    release = trace(registry, registry.release(2).document.digest)
    manifest = trace(registry, Digest.of(registry.manifest("stable", 2)))

    assert release.roles == ("the document of release 2",)
    assert manifest.roles == ("the manifest stable 2, kept for the record",)
    assert release.offers == manifest.offers == (SECOND,)


def test_manifests_that_say_the_same_are_one_span_and_a_share_that_grew_is_another(registry):
    own = at(registry, 3)
    own.create_channel("beta")
    own.create_release("beta", ["pirate@1.0.0"])
    at(registry, 4).create_release("beta", ["pirate@1.0.1"], share_bp=1000)
    at(registry, 5).revoke("json@1.0.0", "not of beta")
    at(registry, 6).revoke("pirate@1.0.1", "leaks")

    spans = [span for span in trace(registry, "pirate@1.0.1").offers if span.channel == "beta"]

    assert [(span.share_bp, span.sequences, span.since, span.until) for span in spans] == [
        (1000, (2, 3), NOW + 4 * 3600, None)
    ]


def test_a_draft_was_offered_to_nobody(stock, registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    stock.publish("robot", template, "beep")
    registry.create_release("stable", ["robot@1.0.0"], draft=True)

    assert trace(registry, "robot@1.0.0").offers == ()


def test_equal_programs_under_two_names_are_told_apart_by_name_and_not_by_digest(stock, registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    stock.publish("one", template, "text of one", number=77)
    stock.publish("two", template, "text of two", number=77)
    at(registry, 3).create_release("stable", ["two@1.0.0"])

    assert trace(registry, "one@1.0.0").offers == ()
    shared = trace(registry, registry.build("one@1.0.0").file.digest)
    assert [span.release for span in shared.offers] == [4]
    assert shared.roles == ("the program of one@1.0.0", "the program of two@1.0.0")


def test_what_was_collected_is_still_told_by_the_log(registry):
    orphan = registry.blobs.put_bytes(b"orphan")
    registry.keeper().collect(grace=0)

    found = trace(registry, orphan.digest)

    assert found.roles == ("nothing refers to it any more",)
    assert [event.action for event in found.events] == ["store.condemn", "store.delete"]


@pytest.mark.parametrize("ref", [Digest.of(b"unknown"), "nobody@1.0.0", "pirate@9.9.9"])
def test_what_was_never_here_is_not_found(registry, ref):
    with pytest.raises(NotFound):
        trace(registry, ref)


def test_the_command_takes_a_digest_a_version_and_a_file(registry, tmp_path):
    build = registry.build("pirate@1.0.1")
    copy = tmp_path / "pirate.pte"
    copy.write_bytes(registry.blobs.read(build.file.digest))

    by_file = answer(registry.home, "trace", copy)

    assert by_file == answer(registry.home, "trace", build.file.digest)
    assert by_file == answer(registry.home, "trace", build.file.digest.hex)
    assert (by_file["digest"], by_file["size"]) == (str(build.file.digest), build.file.size)
    assert by_file["is"] == ["the program of pirate@1.0.1"]
    (span,) = by_file["offered"]
    assert (span["channel"], span["release"], span["sequences"]) == ("stable", 2, [2, 2])
    assert (span["since"], span["until"]) == ("2026-05-28T21:26:40Z", "2026-05-28T22:26:40Z")
    (origin,) = by_file["made_from"]
    assert origin["source"] == str(registry.version("pirate@1.0.1").source)
    assert origin["lineage"] == {"run": "avast"}
    assert origin["foundation"]["name"] == "f1"
    assert origin["base"]["fingerprint"] == str(Digest.of(b"base"))
    assert origin["template"]["executorch"] == "1.5.1"
    foundation = registry.foundation("f1").file.digest
    assert answer(registry.home, "trace", "f1") == answer(registry.home, "trace", foundation)
    by_name = answer(registry.home, "trace", "pirate@1.0.1")
    assert (by_name["digest"], by_name["offered"]) == (None, by_file["offered"])


def test_the_command_speaks_to_people(registry):
    text = ptdock(registry.home, "trace", "pirate@1.0.1").stdout

    assert "is  the version pirate@1.0.1" in text
    assert re.search(r"stable +2 +100 % +2 +2026-05-28 21:26:40 +2026-05-28 22:26:40", text)
    assert "rank 8 on factor (1 module), context 512, ExecuTorch 1.5.1" in text
    assert re.search(r"tester +adapter\.publish", text)


def test_the_command_says_what_it_could_have_taken(registry, tmp_path):
    assert "no such file" in refusal(registry.home, "trace", tmp_path / "nothing.pte", code=5)["message"]
    assert "no version 7.0.0" in refusal(registry.home, "trace", "pirate@7.0.0", code=5)["message"]
    assert "nothing here has the digest" in refusal(registry.home, "trace", "0" * 64, code=5)["message"]


def test_a_base_that_was_moved_is_still_told(registry):
    base = registry.base(Digest.of(b"base"))
    registry.add_base(replace(base, hint="/elsewhere"))

    assert answer(registry.home, "trace", base.tensors.digest)["made_from"][-1]["base"]["hint"] == "/elsewhere"
