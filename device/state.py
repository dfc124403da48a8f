"""What a device knows of itself: who it is, what each channel last said, which set is active and which was before.

    {"schema": 1, "critical": [], "device": "<id>", "channels": {"stable": {
     "registry": "<uuid>", "root": 0, "sequence": 42, "issued": 1780000000, "manifest": D,
     "active": SET, "previous": SET, "refused": ["sha256:…"]}}}

A SET is `{"release": 12, "document": D, "line": …}`: the release's chosen line (registry.release), with only the
adapters that are installed. An app therefore finds everything that it loads in this one file; each file of a set
stands at `blobs/sha256/<hex>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.documents import SCHEMA, Fields, opened
from registry.release import AdapterEntry, Line

MAX_BYTES = 256 << 20  # as large as a release document may be


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """One release's line as it is installed: a foundation, its base program, and adapters that run on it."""

    release: int
    document: Descriptor
    line: Line

    def adapter(self, name: str) -> AdapterEntry | None:
        """The installed adapter of this name."""
        return next((entry for entry in self.line.adapters if entry.name == name), None)

    def files(self) -> dict[Descriptor, str]:
        """Every blob that the set runs with, each once, and what it is, for people."""
        line = self.line
        named: list[tuple[Descriptor | None, str]] = [
            (line.foundation.file, "the foundation"),
            (line.base, "the base program"),
            (line.tokenizer.file if line.tokenizer else None, "the tokenizer"),
            (line.prompt, "the prompt format"),
        ]
        for entry in line.adapters:
            named += [(entry.file, f"adapter {entry.name}@{entry.version}")]
            named += [(entry.prompt, f"the prompt format of {entry.name}")]
            named += [(entry.self_test, f"the self-test of {entry.name}")]
        found: dict[Descriptor, str] = {}
        for blob, what in named:
            if blob is not None:
                found.setdefault(blob, what)
        return found

    def to_json(self) -> dict[str, Any]:
        """The SET of the module's docstring."""
        return {"release": self.release, "document": self.document.to_json(), "line": self.line.to_json()}

    @classmethod
    def read(cls, fields: Fields) -> ActiveSet:
        """From the document. Raises FormatError."""
        return cls(fields.integer("release", low=1), fields.descriptor("document"), Line.read(fields.object("line")))


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What one channel last said, and what of it is installed.

    (`root`, `sequence`) only grows, `issued` is the newest time that a verified manifest stated. `refused` are
    release documents that this device went back from, by rollback or a failed self-test.
    """

    registry: str
    root: int
    sequence: int
    issued: int
    manifest: Descriptor
    active: ActiveSet | None = None
    previous: ActiveSet | None = None
    refused: tuple[Digest, ...] = ()

    def sets(self) -> list[ActiveSet]:
        """The sets whose files are kept: the active one, then the one before."""
        return [each for each in (self.active, self.previous) if each]

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        values: dict[str, Any] = {
            "registry": self.registry,
            "root": self.root,
            "sequence": self.sequence,
            "issued": self.issued,
            "manifest": self.manifest.to_json(),
            "refused": [str(digest) for digest in self.refused],
        }
        sets = {"active": self.active, "previous": self.previous}
        return values | {name: each.to_json() for name, each in sets.items() if each}

    @classmethod
    def read(cls, fields: Fields) -> ChannelState:
        """From the document. Raises FormatError."""
        return cls(
            registry=fields.label("registry"),
            root=fields.integer("root"),
            sequence=fields.integer("sequence"),
            issued=fields.integer("issued"),
            manifest=fields.descriptor("manifest"),
            active=ActiveSet.read(fields.object("active")) if "active" in fields else None,
            previous=ActiveSet.read(fields.object("previous")) if "previous" in fields else None,
            refused=fields.digests("refused"),
        )


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The device's id (a text; the rollout bucket is computed from it) and its channels by name."""

    id: str
    channels: Mapping[str, ChannelState] = field(default_factory=dict)

    def active_sets(self) -> dict[str, ActiveSet]:
        """The active set of each channel that has one."""
        return {name: channel.active for name, channel in self.channels.items() if channel.active}

    def with_channel(self, name: str, channel: ChannelState) -> DeviceState:
        """The same with one channel's state set."""
        return replace(self, channels={**self.channels, name: channel})

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        channels = {name: channel.to_json() for name, channel in self.channels.items()}
        return canonical.dumps({"schema": SCHEMA, "critical": [], "device": self.id, "channels": channels})

    @classmethod
    def from_bytes(cls, data: bytes) -> DeviceState:
        """Read the document strictly. Raises FormatError."""
        fields = opened(data, what="device state", known="", limit=MAX_BYTES)
        channels = fields.object("channels")
        read = {name: ChannelState.read(channels.object(name)) for name in channels.keys()}  # noqa: SIM118 - not a dict
        return cls(fields.label("device"), read)
