"""A real static tree in a directory, written with the registry's own document types."""

import pytest

from device.source import blob_path, manifest_path
from registry.digest import Descriptor
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import AdapterEntry, FoundationEntry, Line, ReleaseDocument, Requires, Tokenizer

REGISTRY = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
NOW = 1_780_000_000
REQUIRES = Requires(minimum=(1, 5), guaranteed=(1, 6), backends=("XnnpackBackend",))


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
        entries = tuple(
            AdapterEntry(name, "1.0.0", self.put(data), **options.get(name, {})) for name, data in adapters.items()
        )
        return Line(
            foundation=FoundationEntry(self.put(foundation)),
            base=self.put(base),
            requires=options.get("requires", REQUIRES),
            adapters=entries,
            tokenizer=Tokenizer("hf-json", self.put(tokenizer)) if tokenizer else None,
            prompt=self.put(options["prompt"]) if "prompt" in options else None,
        )

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
def site(tmp_path):
    return Site(tmp_path / "site")
