"""A real static tree in a directory, written with the registry's own document types."""

import json
import shutil
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import numpy as np
import pytest

from device.source import manifest_path
from registry.digest import Descriptor
from registry.formats.ptd import read_ptd
from registry.links import tensor_key
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import AdapterEntry, Factors, FoundationEntry, Line, ReleaseDocument, Requires, Tokenizer
from registry.relink import hollow, pack, relink
from registry.relocation import RelocationTable, Slot
from registry.site import blob_path
from registry.wire import Trained, encode, expand

REGISTRY = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
NOW = 1_780_000_000
REQUIRES = Requires(minimum=(1, 5), guaranteed=(1, 6), backends=("XnnpackBackend",))


class Parts:
    """A program with one factor of `count` trained BF16 values, and what a device makes it from."""

    def __init__(self, seed, count=4096):
        values = np.random.default_rng(seed).integers(0, 0x4000, count).astype(np.uint32) << 16
        slot = Slot(("a",), "F32", (count,), 4 * count, (256,), (64, 128))
        relocations = RelocationTable(256 + 4 * count + 32, (slot,), ())
        blank = hollow(bytes(range(256)) * (relocations.program_size // 256 + 1), relocations)
        blank = blank[: relocations.program_size]
        self.table, self.factors = encode(relocations, {"a": Trained("BF16", values.view(np.float32), np.float32(0.7))})
        self.template = pack(blank)
        self.program = relink(blank, relocations, expand(self.table, self.factors)[1])


class Site:
    """Publishes releases of arbitrary small files into a static tree."""

    def __init__(self, root):
        self.root = root
        self.sequences = {}
        self.pins = {}

    def put(self, data: bytes) -> Descriptor:
        blob = Descriptor.of(data)
        path = self.root / blob_path(blob.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return blob

    def blob_file(self, data: bytes):
        return self.root / blob_path(Descriptor.of(data).digest)

    def line(self, adapters, foundation=b"foundation", base=b"base program", tokenizer=b"{}", **options):
        entries = tuple(self.entry(name, data, **options.get(name, {})) for name, data in adapters.items())
        return Line(
            foundation=FoundationEntry(self.put(foundation)),
            base=self.put(base),
            requires=options.get("requires", REQUIRES),
            adapters=entries,
            tokenizer=Tokenizer("hf-json", self.put(tokenizer)) if tokenizer else None,
            prompt=self.put(options["prompt"]) if "prompt" in options else None,
        )

    def entry(self, name, data, **options):
        """An adapter's entry; `data` is its program, or a `Parts` to make it from."""
        if isinstance(data, bytes):
            return AdapterEntry(name, "1.0.0", self.put(data), **options)
        factors = Factors(self.put(data.factors), self.put(data.template), self.put(data.table))
        return AdapterEntry(name, "1.0.0", self.put(data.program), factors=factors, **options)

    def release(self, number, *lines) -> int:
        document = self.put(ReleaseDocument(number, lines).to_bytes())
        self.pins[number] = ReleasePin(number, document)
        return number

    def offer(self, number, channel="stable", **changes) -> Manifest:
        """Offer a release to everyone, under the channel's next sequence."""
        self.sequences[channel] = changes.pop("sequence", self.sequences.get(channel, 0) + 1)
        arms = changes.pop("arms", (Arm(number, 10_000),))
        values = {
            "registry": REGISTRY,
            "channel": channel,
            "sequence": self.sequences[channel],
            "issued": NOW,
            "expires": NOW + 2_592_000,
            "poll_seconds": 14_400,
            "salt": "00" * 16,
            "arms": arms,
            "releases": tuple(self.pins[arm.release] for arm in arms if arm.release is not None),
        }
        manifest = Manifest(**(values | changes))
        path = self.root / manifest_path(channel)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manifest.to_bytes())
        return manifest


@pytest.fixture
def phone(tmp_path):
    """Where a device's directory is to be."""
    return tmp_path / "phone"


@pytest.fixture
def power_cut():
    """`power_cut(last)`: an observer of registry.files; nothing happens from step `last` on, clearing up included."""

    def observer(last):
        seen = []

        def observe(step):
            seen.append(step)
            if len(seen) > last:
                raise KeyboardInterrupt

        return observe

    return observer


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up is what half of these tests are about."""


@contextmanager
def serving(handler, **attributes):
    """A server on a loopback port, with these attributes and its `address`."""
    with Server(("127.0.0.1", 0), handler) as server:
        vars(server).update(attributes, address=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def serve():
    return serving


@pytest.fixture
def parts():
    return Parts


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture(scope="session")
def published(made_once, exported_home):
    """A store with two adapters of one structure, trained in BF16, on the channel stable; never written to."""

    def make(directory):
        home = directory / "home"
        shutil.copytree(exported_home, home)
        registry = Registry.open(home)
        for seed, name in enumerate(["pirate", "json"]):
            options = PublishOptions(foundation="plain", name=name)
            publish(registry, write_adapter(directory / name, seed), options)
        registry.create_channel("stable")
        registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    from exporter.publish import PublishOptions, publish
    from registry.service import Registry

    return made_once("published", make) / "home"


def write_adapter(directory, seed):
    """A PEFT adapter for the q_proj of both layers, as training in BF16 leaves it."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight": torch.randn(shape).bfloat16()
        for layer in (0, 1)
        for part, shape in (("lora_A", (4, 32)), ("lora_B", (32, 4)))
    }
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def tiny_files(made_once, published, bases):
    """foundation.ptd, base.pte, pirate.pte, json.pte, tokenizer.json; other.ptd, which fits none of them."""
    from registry.service import Registry

    def make(directory):
        registry = Registry.open(published)
        foundation = registry.foundation("plain")
        base = next(each for each in registry.templates(foundation.file.digest) if not each.structure["modules"])
        data = registry.blobs.read(foundation.file.digest)
        found = {
            "foundation.ptd": data,
            "other.ptd": with_another_embedding(data),
            "base.pte": registry.blobs.read(base.hollow.digest),
            "tokenizer.json": (bases / "plain" / "tokenizer.json").read_bytes(),
        }
        for name in ("pirate", "json"):
            found[f"{name}.pte"] = registry.blobs.read(registry.build(f"{name}@1.0.0").file.digest)
        for name, content in found.items():
            (directory / name).write_bytes(content)

    return made_once("device-files", make)


def with_another_embedding(foundation: bytes) -> bytes:
    """The foundation of a base whose embedding differs in one value: other bytes, and the key that certifies them."""
    (entry,) = [each for each in read_ptd(foundation).entries if each.layout and each.layout.sizes == (64, 32)]
    changed = bytearray(foundation)
    changed[entry.offset + 2] ^= 1
    data = changed[entry.offset : entry.offset + entry.size]
    key = tensor_key(entry.layout.dtype, entry.layout.sizes, entry.layout.dim_order, data)
    return bytes(changed).replace(entry.key.encode(), key.encode())
