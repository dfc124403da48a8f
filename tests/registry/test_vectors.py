"""The shared vectors, which clients in other languages check themselves against, agree with this implementation."""

import base64
import json
from pathlib import Path

import pytest

from registry import canonical
from registry.device_state import DeviceState
from registry.digest import Digest
from registry.errors import FormatError, IntegrityError
from registry.manifest import Manifest
from registry.plan import plan
from registry.release import ReleaseDocument
from registry.signing import light

FOLDER = Path(__file__).parents[1] / "vectors"
LIGHT = json.loads((FOLDER / "light.json").read_text(encoding="utf-8"))
DOCUMENTS = json.loads((FOLDER / "documents.json").read_text(encoding="utf-8"))
PLANS = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", LIGHT["vectors"], ids=lambda vector: vector["note"])
def test_a_light_signature_is_valid_exactly_where_the_vectors_say_so(vector):
    data, signature = vector["manifest"].encode(), base64.b64decode(vector["signature"])
    if vector["valid"]:
        light.verify(LIGHT["public_key"].encode(), data, signature)
    else:
        with pytest.raises(IntegrityError):
            light.verify(LIGHT["public_key"].encode(), data, signature)


def test_documents_keep_their_bytes_through_reading_and_writing():
    for kind, name in ((Manifest, "manifest"), (ReleaseDocument, "release")):
        data = DOCUMENTS[name].encode()
        assert kind.from_bytes(data).to_bytes() == data
        assert str(Digest.of(data)) == DOCUMENTS[f"{name}_digest"]


def test_the_manifest_of_the_vectors_pins_its_release():
    read = Manifest.from_bytes(DOCUMENTS["manifest"].encode())
    assert str(read.pin(12).file.digest) == DOCUMENTS["release_digest"]


@pytest.mark.parametrize("vector", DOCUMENTS["refused"], ids=lambda vector: vector["note"])
def test_a_document_that_must_be_refused_is(vector):
    assert vector["manifest"] != DOCUMENTS["manifest"]
    with pytest.raises(FormatError):
        Manifest.from_bytes(vector["manifest"].encode())


@pytest.mark.parametrize("vector", DOCUMENTS["ignored"], ids=lambda vector: vector["note"])
def test_a_document_with_what_must_be_ignored_reads_as_without(vector):
    assert Manifest.from_bytes(vector["manifest"].encode()) == Manifest.from_bytes(DOCUMENTS["manifest"].encode())


def planned(vector):
    data = PLANS["release"].encode()
    release = ReleaseDocument.from_bytes(data)
    device = DeviceState.from_bytes(canonical.dumps(vector["device"]))
    manifest = Manifest.from_bytes(vector["manifest"].encode())
    answer = plan([manifest], {Digest.of(data): release}, device, now=vector["now"])
    if answer.refused:
        return {"code": answer.refused[0].code}
    if not answer.activate:
        return {"release": None}
    (activation,) = answer.activate
    foundations = [line.foundation.file for line in release.lines]
    return {
        "release": activation.set.release,
        "line": foundations.index(activation.set.line.foundation.file),
        "adapters": [entry.name for entry in activation.set.line.adapters],
        "download": [str(each.file.digest) for each in answer.download],
    }


@pytest.mark.parametrize("vector", PLANS["vectors"], ids=lambda vector: vector["note"])
def test_a_device_plans_what_the_vectors_say(vector):
    assert planned(vector) == vector["plan"]
