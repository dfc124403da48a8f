"""Manifests and release documents: equal values have equal bytes, and nothing unchecked comes out of the reader."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.errors import FormatError
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import (
    AdapterEntry,
    Factors,
    FoundationEntry,
    Line,
    ReleaseDocument,
    Requires,
    Tokenizer,
)


def pin(text: str, size: int = 10) -> Descriptor:
    return Descriptor(Digest.of(text.encode()), size)


MANIFEST = Manifest(
    registry="123e4567-e89b-42d3-a456-426614174000",
    channel="stable",
    sequence=42,
    issued=1_780_000_000,
    expires=1_782_592_000,
    poll_seconds=14_400,
    salt="0" * 32,
    arms=(Arm(12, 1000, "halted"), Arm(11, 8000), Arm(None, 1000, holdout=True)),
    releases=(ReleasePin(12, pin("r12")), ReleasePin(11, pin("r11"))),
    revoked=(pin("bad").digest,),
    log_head=pin("head").digest,
)
FULL = AdapterEntry(
    "pirate",
    "1.2.0",
    pin("pirate", 2_130_560),
    "on-demand",
    pin("test"),
    pin("prompt"),
    Factors(pin("factors"), pin("template"), pin("table")),
)
LINE = Line(
    foundation=FoundationEntry(pin("foundation", 473_000_000), pin("segments")),
    base=pin("base"),
    requires=Requires((1, 5), (1, 6), ("XnnpackBackend",), ("llama::custom_sdpa",), 1_500_000_000, {"android": 512}),
    adapters=(FULL, AdapterEntry("json", "1.0.0", pin("json"))),
    tokenizer=Tokenizer("hf-json", pin("tokenizer")),
    prompt=pin("chat"),
)
RELEASE = ReleaseDocument(12, (LINE,))
PLAIN = ReleaseDocument(1, (Line(FoundationEntry(pin("f")), pin("b"), Requires((1, 5), (1, 6)), ()),))


@pytest.mark.parametrize("document", [MANIFEST, RELEASE, PLAIN], ids=["manifest", "release", "plain release"])
def test_reading_what_was_written_gives_the_same_value(document):
    assert type(document).from_bytes(document.to_bytes()) == document


def test_a_manifest_has_the_fields_of_the_specification():
    assert json.loads(MANIFEST.to_bytes()) == {
        "schema": 1,
        "critical": [],
        "registry": "123e4567-e89b-42d3-a456-426614174000",
        "channel": "stable",
        "sequence": 42,
        "issued": 1_780_000_000,
        "expires": 1_782_592_000,
        "poll_seconds": 14_400,
        "log_head": str(pin("head").digest),
        "salt": "0" * 32,
        "arms": [
            {"release": 12, "share_bp": 1000, "state": "halted"},
            {"release": 11, "share_bp": 8000, "state": "open"},
            {"release": None, "share_bp": 1000, "state": "open", "holdout": True},
        ],
        "releases": [
            {"release": 12, "digest": str(pin("r12").digest), "size": 10},
            {"release": 11, "digest": str(pin("r11").digest), "size": 10},
        ],
        "revoked": [str(pin("bad").digest)],
    }


def test_a_release_has_the_fields_of_the_specification():
    line = json.loads(RELEASE.to_bytes())["lines"][0]
    assert line["foundation"] == {**pin("foundation", 473_000_000).to_json(), "segments": pin("segments").to_json()}
    assert line["tokenizer"] == {"format": "hf-json", "file": pin("tokenizer").to_json()}
    assert line["requires"] == {
        "executorch": {"min": [1, 5], "guaranteed": [1, 6]},
        "backends": ["XnnpackBackend"],
        "operators": ["llama::custom_sdpa"],
        "ram_bytes": 1_500_000_000,
        "app": {"android": {"min_build": 512}},
    }
    assert line["adapters"][0] == {
        "name": "pirate",
        "version": "1.2.0",
        **pin("pirate", 2_130_560).to_json(),
        "delivery": "on-demand",
        "self_test": pin("test").to_json(),
        "prompt": pin("prompt").to_json(),
        "encodings": [
            {
                "type": "factors",
                **pin("factors").to_json(),
                "template": pin("template").to_json(),
                "table": pin("table").to_json(),
            }
        ],
    }


def test_the_bytes_do_not_depend_on_the_order_of_keys():
    shuffled = dict(reversed(MANIFEST.to_json().items()))
    assert Manifest.from_bytes(json.dumps(shuffled, indent=1).encode()).to_bytes() == MANIFEST.to_bytes()


def edited(document, *path_and_value):
    """The document's bytes with one value changed; the last argument is the value, "-" removes the field."""
    *path, value = path_and_value
    values = document.to_json()
    place = values
    for step in path[:-1]:
        place = place[step]
    if value == "-":
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("schema", 2), "schema 2, but this ptdock reads 1"),
        (("schema", True), r"manifest\.schema: expected an integer from 1, got true"),
        (("critical", ["quantum"]), "'critical' names 'quantum'"),
        (("critical", "arms"), r"manifest\.critical: expected a list"),
        (("channel", "../../etc/x"), "not a usable channel name"),
        (("channel", "/etc/passwd"), "not a usable channel name"),
        (("channel", "stable."), "not a usable channel name"),
        (("registry", "123E4567-E89B-42D3-A456-426614174000"), "UUID"),
        (("salt", "0" * 31), "32 lower-case hex digits"),
        (("salt", "-"), "'salt' is missing"),
        (("sequence", 0), "sequence: expected an integer from 1, got 0"),
        (("sequence", 1.0), "sequence"),
        (("sequence", 1 << 63), "sequence"),
        (("poll_seconds", 0), "poll_seconds"),
        (("expires", 1), "expires 1, but was issued 1780000000"),
        (("revoked", ["sha256:12"]), "not a digest"),
        (("revoked", [None]), "expected a text"),
        (("log_head", None), "log_head: expected a text, got null"),
        (("arms", []), "sum to 0, not 10000"),
        (("arms", 0, "share_bp", 999), "sum to 9999, not 10000"),
        (("arms", 0, "share_bp", True), "share_bp"),
        (("arms", 0, "share_bp", -1), "share_bp"),
        (("arms", 0, "state", "paused"), "'open' or 'halted'"),
        (("arms", 0, "release", 11), "stands in two arms"),
        (("arms", 0, "release", 13), "release 13, which is not pinned"),
        (("arms", 0, "release", None), "cannot be halted"),
        (("arms", 0, "holdout", True), "a holdout offers no release"),
        (("arms", 1, 7), r"arms\[1\]: expected an object"),
        (("releases", 0, "release", 11), "pinned twice"),
        (("releases", 0, "size", -1), "size"),
        (("releases", 0, "digest", "sha256:" + "A" * 64), "not a digest"),
        (("releases", 0, "digest", "sha512:" + "a" * 64), "not a digest"),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_refused_by_name(path, message):
    with pytest.raises(FormatError, match=message):
        Manifest.from_bytes(edited(MANIFEST, *path))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("schema", 2), "schema 2"),
        (("release", 0), "release"),
        (("lines", []), "no line"),
        (("lines", 0, "foundation", "digest", "sha256:../../etc/passwd"), "not a digest"),
        (("lines", 0, "foundation", "size", True), r"lines\[0\]\.foundation\.size"),
        (("lines", 0, "base", "size", -5), "size"),
        (("lines", 0, "tokenizer", "format", "../x"), "tokenizer format"),
        (("lines", 0, "requires", "-"), "'requires' is missing"),
        (("lines", 0, "requires", "executorch", "min", [1]), "two integers"),
        (("lines", 0, "requires", "executorch", "min", [1, 7]), r"min \(1, 7\) is above guaranteed \(1, 6\)"),
        (("lines", 0, "requires", "backends", [""]), "printable"),
        (("lines", 0, "requires", "operators", ["a\u001b[2J"]), "printable"),
        (("lines", 0, "requires", "backends", ["\ud800"]), "half of a surrogate pair"),
        (("lines", 0, "requires", "app", "android", {}), "'min_build' is missing"),
        (("lines", 0, "adapters", 0, "name", "../../etc/x"), r"adapters\[0\]\.name: .* not a usable adapter name"),
        (("lines", 0, "adapters", 0, "name", "json"), "stands twice"),
        (("lines", 0, "adapters", 0, "version", "1.0"), "not a version"),
        (("lines", 0, "adapters", 0, "delivery", "push"), "'prefetch' or 'on-demand'"),
        (("lines", 0, "adapters", 0, "self_test", None), "expected an object, got null"),
        (("lines", 0, "adapters", 0, "encodings", 0, "table", "-"), "'table' is missing"),
    ],
)
def test_a_release_that_breaks_a_rule_is_refused_by_name(path, message):
    with pytest.raises(FormatError, match=message):
        ReleaseDocument.from_bytes(edited(RELEASE, *path))


def test_unknown_fields_are_ignored_at_every_depth():
    values = MANIFEST.to_json() | {"quantum": {"x": 1}}
    values["arms"][0]["colour"] = "blue"
    assert Manifest.from_bytes(canonical.dumps(values)) == MANIFEST
    values = RELEASE.to_json() | {"quantum": 1}
    values["lines"][0]["adapters"][0]["encodings"].append({"type": "delta", "from": 3})
    assert ReleaseDocument.from_bytes(canonical.dumps(values)) == RELEASE


def test_a_critical_field_that_the_reader_knows_is_accepted():
    assert Manifest.from_bytes(edited(MANIFEST, "critical", ["revoked"])) == MANIFEST
    assert ReleaseDocument.from_bytes(edited(RELEASE, "critical", ["delivery"])) == RELEASE


def test_a_newer_document_says_to_upgrade():
    for data in (edited(MANIFEST, "schema", 2), edited(MANIFEST, "critical", ["quantum"])):
        with pytest.raises(FormatError) as caught:
            Manifest.from_bytes(data)
        assert "upgrade ptdock" in caught.value.hint


def test_lines_hold_the_same_adapters_unless_holes_are_recorded():
    short = replace(LINE, adapters=LINE.adapters[:1])
    with pytest.raises(FormatError, match="json not in every line"):
        ReleaseDocument(3, (LINE, short))
    allowed = ReleaseDocument(3, (LINE, short), holes=True)
    assert ReleaseDocument.from_bytes(allowed.to_bytes()) == allowed


def test_blobs_lists_everything_that_a_document_pins():
    pinned = set()

    def collect(value):
        if isinstance(value, dict):
            if "digest" in value:
                pinned.add(Descriptor(Digest.parse(value["digest"]), value["size"]))
            for each in value.values():
                collect(each)
        if isinstance(value, list):
            for each in value:
                collect(each)

    collect(RELEASE.to_json())
    assert set(RELEASE.blobs()) == pinned
    assert len(pinned) == 12


def test_a_manifest_of_unbounded_size_is_refused_before_parsing():
    with pytest.raises(FormatError, match="at most"):
        Manifest.from_bytes(b"[" * (5 << 20))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_format_error(data):
    for kind in (Manifest, ReleaseDocument):
        with pytest.raises(FormatError):
            kind.from_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(MANIFEST.to_json())), JSON)
def test_a_manifest_with_any_one_field_replaced_gives_a_value_or_a_format_error(name, value):
    try:
        read = Manifest.from_bytes(edited(MANIFEST, name, value))
    except FormatError:
        return
    assert Manifest.from_bytes(read.to_bytes()) == read


@given(st.sampled_from(sorted(LINE.to_json())), JSON)
def test_a_line_with_any_one_field_replaced_gives_a_value_or_a_format_error(name, value):
    try:
        read = ReleaseDocument.from_bytes(edited(RELEASE, "lines", 0, name, value))
    except FormatError:
        return
    assert ReleaseDocument.from_bytes(read.to_bytes()) == read
