"""A foundation update through real servers: a release made as usual lets devices fetch only what changed."""

import shutil
from contextlib import contextmanager

import pytest
from safetensors.torch import load_file, save_file

from device.installed import locate
from device.source import open_source
from device.sync import sync
from exporter.foundation import ExportOptions, export_foundation
from exporter.publish import PublishOptions, publish
from registry.release import ReleaseDocument
from registry.segments import SegmentTable
from registry.service import Registry
from tests.server.nginx import NGINX, nginx

CHANGED = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="session")
def tuned(made_once, made, bases):
    """A store that is about to offer a fine-tune of its foundation with one tensor changed, and the same adapters."""

    def make(directory):
        home = shutil.copytree(made / "home", directory / "home")
        base = shutil.copytree(bases / "plain", directory / "base")
        tensors = load_file(base / "model.safetensors")
        tensors[CHANGED] = tensors[CHANGED] + 1
        save_file(tensors, base / "model.safetensors", {"format": "pt"})
        registry = Registry.open(home)
        export_foundation(registry, base, "tuned", ExportOptions(context=64))
        for name in ("pirate", "json"):
            publish(registry, made / name, PublishOptions("tuned", name, "1.0.0"))

    return made_once("tuned", make) / "home"


@contextmanager
def behind_nginx(home, work, _serve):
    work.mkdir()
    with nginx(home / "site", work) as address:
        yield address


@contextmanager
def behind_ptdock(home, _work, serve):
    with serve(home) as running:
        yield running.address


needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt-get install nginx-light)")


@pytest.mark.parametrize("behind", [behind_ptdock, pytest.param(behind_nginx, marks=needs_nginx)])
def test_a_device_fetches_only_the_pieces_that_changed(tuned, tmp_path, serve, behind):
    home, phone = shutil.copytree(tuned, tmp_path / "home"), tmp_path / "phone"
    registry = Registry.open(home)
    registry.refresh_site()
    with behind(home, tmp_path / "work", serve) as address:
        sync(open_source(address), ["stable"], phone)
        registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"], lines=["tuned"])
        update = sync(open_source(address), ["stable"], phone)

    new = registry.foundation("tuned").file
    pieces, held = (table(registry, name) for name in ("tuned", "plain"))
    changed = sum(piece.size for piece in set(pieces.pieces) - set(held.pieces))
    others = [each for each in update.plan.download if each.kind != "foundation"]
    documents = registry.release(2).document.size + len(pieces.to_bytes())
    spent = update.fetched - documents - sum(each.file.size for each in others)

    assert update.channels[0].outcome == "activated"
    assert locate(phone, "pirate").foundation.path.read_bytes() == registry.blobs.read(new.digest)
    assert changed < new.size / 3
    assert changed <= spent < changed + 64 * 1024
    assert spent < new.size


def table(registry, name):
    return SegmentTable.of_file(registry.blobs.path(registry.foundation(name).file.digest))


def test_a_releases_foundation_has_its_segment_table_among_what_is_offered(offered):
    registry = Registry.open(offered)
    document = ReleaseDocument.from_bytes(registry.blobs.read(registry.release(1).document.digest))
    (line,) = document.lines

    assert registry.blobs.read(line.foundation.segments.digest) == table(registry, "plain").to_bytes()
    assert (registry.site / "blobs" / "sha256" / line.foundation.segments.digest.hex).is_file()
