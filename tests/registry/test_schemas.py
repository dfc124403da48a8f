"""The JSON Schema files describe the documents as they really are: every field, and no other."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import registry
from registry import device_state, manifest, prompt, release
from registry.device_state import ActiveSet, App, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import FormatError
from registry.manifest import Arm, Manifest, ReleasePin
from registry.plan import plan
from registry.prompt import Affix, Message, Prompt, Sampling, Vector
from registry.release import AdapterEntry, Factors, FoundationEntry, Line, ReleaseDocument, Requires, Tokenizer

FOLDER = Path(registry.__file__).parent / "schemas"
SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


def closed(schema):
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    conditional = "then" in schema
    if "properties" in schema and schema.get("type") == "object" and not conditional:
        result["additionalProperties"] = False
    return result


def validator(name, *, strict=True):
    schemas = {key: closed(value) if strict else value for key, value in SCHEMAS.items()}
    known = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in schemas.values())
    return Draft202012Validator(schemas[name], registry=known)


def pin(text, size=10):
    return Descriptor(Digest.of(text.encode()), size)


PARTS = Factors(pin("factors"), pin("template"), pin("table"))
LINE = Line(
    FoundationEntry(pin("foundation"), pin("segments")),
    pin("base"),
    Requires((1, 5), (1, 6), ("XnnpackBackend",), ("llama::custom_sdpa",), 100, {"android": 512}),
    (
        AdapterEntry("pirate", "1.2.0-rc.1+b", pin("pirate"), "prefetch", pin("test"), pin("chat"), PARTS),
        AdapterEntry("json", "1.0.0", pin("json"), "on-demand"),
        AdapterEntry("poet", "1.0.0", pin("poet")),
    ),
    Tokenizer("hf-json", pin("tokenizer")),
    pin("plain chat"),
)
OLD = Line(
    FoundationEntry(pin("old")),
    pin("old base"),
    LINE.requires,
    (AdapterEntry("pirate", "1.0.0", pin("p1")), *LINE.adapters[1:]),
)
RELEASE = ReleaseDocument(12, (LINE,), holes=True)
DOCUMENT = Descriptor.of(RELEASE.to_bytes())
MANIFEST = Manifest(
    "123e4567-e89b-42d3-a456-426614174000",
    "stable",
    42,
    1_780_000_000,
    1_782_592_000,
    14_400,
    "0" * 32,
    (Arm(12, 9000), Arm(None, 1000, holdout=True)),
    (ReleasePin(12, DOCUMENT),),
    (pin("poet").digest,),
    pin("head").digest,
)
STABLE = ChannelState(
    MANIFEST.registry,
    1,
    41,
    1_779_000_000,
    ActiveSet(11, pin("r11"), OLD),
    ActiveSet(10, pin("r10"), OLD),
    (pin("r9").digest,),
)
PHONE = DeviceState(
    "phone-1",
    "1.8.0+cpu",
    App("android", 512),
    ("XnnpackBackend",),
    ("llama::custom_sdpa",),
    8_000,
    9_000,
    9_000,
    tuple(map(pin, ("old", "old base", "p1", "json", "junk"))),
    ("pirate", "json"),
    ("json",),
    ("factors",),
    {"stable": STABLE},
)
PROMPT = Prompt(
    {"system": Affix("<s>", "</s>"), "user": Affix("<u>", "</u>")},
    "<a>",
    "<bos>",
    "Be brief.",
    trim=True,
    stop_token_ids=(2,),
    sampling=Sampling(0.7, 0.9, 40),
    vectors=(Vector((Message("user", "hi"),), "…", (1, 2)),),
)
PLAN = plan([MANIFEST], {DOCUMENT.digest: RELEASE}, PHONE, now=MANIFEST.issued, root=1)
FULL = {"manifest": MANIFEST, "release": RELEASE, "device_state": PHONE, "prompt": PROMPT, "plan": PLAN}
READERS = {"manifest": manifest, "release": release, "device_state": device_state, "prompt": prompt}


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_itself_valid(name):
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("name", FULL)
def test_a_document_with_every_field_is_described_whole(name):
    validator(name).validate(json.loads(FULL[name].to_bytes()))


@pytest.mark.parametrize("name", READERS)
def test_a_bare_document_is_described_too(name):
    bare = {
        "manifest": Manifest(*(getattr(MANIFEST, field) for field in Manifest.__slots__[:-2])),
        "release": ReleaseDocument(1, (Line(FoundationEntry(pin("f")), pin("b"), Requires((1, 5), (1, 6)), ()),)),
        "device_state": DeviceState("x"),
        "prompt": Prompt({}, ""),
    }[name]
    validator(name).validate(json.loads(bare.to_bytes()))


@pytest.mark.parametrize("name", READERS)
def test_the_reader_knows_exactly_the_fields_that_the_schema_names(name):
    assert set(READERS[name].KNOWN.split()) == fields_of(SCHEMAS[name])


def fields_of(schema):
    if isinstance(schema, list):
        return set().union(*map(fields_of, schema))
    if not isinstance(schema, dict):
        return set()
    reference = schema.get("$ref", "")
    outside = (
        fields_of(SCHEMAS["release"]["$defs"]) if reference.endswith("/line") and "release.json" in reference else set()
    )
    pinned = {"digest", "size"} if reference == "release.json#/$defs/pin" else set()
    return set(schema.get("properties", {})) | outside | pinned | set().union(*map(fields_of, schema.values()))


def test_the_plan_of_the_example_exercises_every_part():
    shown = PLAN.to_json()
    assert all(shown[part] for part in ("download", "keep", "activate", "deactivate", "delete", "reasons"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20_000) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def paths(value, at=()):
    """The path of every value in a document, the document's own excepted."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield (*at, key)
        yield from paths(each, (*at, key))


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_what_the_reader_accepts_the_schema_accepts(name, data):
    values = json.loads(FULL[name].to_bytes())
    *way, last = data.draw(st.sampled_from(sorted(paths(values), key=str)))
    place = values
    for step in way:
        place = place[step]
    if data.draw(st.booleans()) or isinstance(place, list):
        place[last] = data.draw(JSON)
    else:
        del place[last]
    try:
        type(FULL[name]).from_bytes(json.dumps(values).encode())
    except FormatError:
        return
    validator(name, strict=False).validate(values)
