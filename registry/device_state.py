"""What a device states about itself, as `plan` reads it: what it runs, what it holds, and how much room it has.

    {"schema": 1, "critical": [], "id": "phone-1", "executorch": "1.5.1", "backends": ["XnnpackBackend"],
     "free_disk": 2000000000, "holds": [D, …], "wants": ["pirate"],
     "channels": {"stable": {"registry": "<uuid>", "root": 1, "sequence": 42, "issued": 1780000000,
                             "active": SET, "previous": SET, "refused": ["sha256:…"]}}}

Only `id` is needed: what a device leaves out is unknown, and no line is refused for it. D is {"digest", "size"}; a
SET is {"release": 12, "document": D, "line": …}: the release's line with only the adapters that are installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.documents import SCHEMA, Fields, descriptor, opened
from registry.release import LINE_KNOWN, AdapterEntry, Line

MAX_BYTES = 256 << 20  # sets repeat lines, so as large as a release document may be
ENCODINGS = ("factors",)
KNOWN = (
    f"{LINE_KNOWN} active app backends build channels critical digest document encodings executorch free_disk holds"
    " id issued line on_demand operators platform previous quota ram_bytes refused registry release root schema"
    " sequence size wants"
)
_EXECUTORCH = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?:[.+a-z-][0-9a-z.+-]{0,40})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class App:
    """The app around the runtime: its platform (`android`, `ios`, …) and build number."""

    platform: str
    build: int


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """One release's line as it is installed: a foundation, its base program, and adapters that run on it."""

    release: int
    document: Descriptor
    line: Line

    def adapter(self, name: str) -> AdapterEntry | None:
        """The installed adapter of this name."""
        return next((entry for entry in self.line.adapters if entry.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The SET of the module's docstring."""
        return {"release": self.release, "document": self.document.to_json(), "line": self.line.to_json()}

    @classmethod
    def read(cls, fields: Fields) -> ActiveSet:
        """From the document. Raises FormatError."""
        return cls(fields.integer("release", low=1), fields.descriptor("document"), Line.read(fields.object("line")))


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What one channel last said to this device, and what of it is installed.

    (`root`, `sequence`) only grows; `issued` is the newest time that a verified manifest stated. `refused` are the
    digests of release documents that the device went back from, by rollback or a failed self-test.
    """

    registry: str
    root: int
    sequence: int
    issued: int
    active: ActiveSet | None = None
    previous: ActiveSet | None = None
    refused: tuple[Digest, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        values: dict[str, Any] = {
            "registry": self.registry,
            "root": self.root,
            "sequence": self.sequence,
            "issued": self.issued,
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
            active=ActiveSet.read(fields.object("active")) if "active" in fields else None,
            previous=ActiveSet.read(fields.object("previous")) if "previous" in fields else None,
            refused=fields.digests("refused") if "refused" in fields else (),
        )


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device. None means unknown, or without limit for `free_disk` and `quota`; both are bytes.

    `executorch` is the version compiled into the app, `holds` every blob in the device's store, `quota` the most
    bytes that the store may have. `wants` names the adapters to install (None: all); `on_demand` those of delivery
    `on-demand` that were asked for; `encodings` the encodings that the device can read (`factors`).
    """

    id: str
    executorch: str | None = None
    app: App | None = None
    backends: tuple[str, ...] | None = None
    operators: tuple[str, ...] | None = None
    ram_bytes: int | None = None
    free_disk: int | None = None
    quota: int | None = None
    holds: tuple[Descriptor, ...] = ()
    wants: tuple[str, ...] | None = None
    on_demand: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    channels: Mapping[str, ChannelState] = field(default_factory=dict)

    @property
    def runtime(self) -> tuple[int, int] | None:
        """ExecuTorch's (major, minor), when it is known."""
        match = _EXECUTORCH.fullmatch(self.executorch) if self.executorch else None
        return (int(match[1]), int(match[2])) if match else None

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        facts: dict[str, Any] = {
            "executorch": self.executorch,
            "app": {"platform": self.app.platform, "build": self.app.build} if self.app else None,
            "backends": None if self.backends is None else list(self.backends),
            "operators": None if self.operators is None else list(self.operators),
            "ram_bytes": self.ram_bytes,
            "free_disk": self.free_disk,
            "quota": self.quota,
            "wants": None if self.wants is None else list(self.wants),
        }
        return {
            "schema": SCHEMA,
            "critical": [],
            "id": self.id,
            **{name: value for name, value in facts.items() if value is not None},
            "holds": [each.to_json() for each in self.holds],
            "on_demand": list(self.on_demand),
            "encodings": list(self.encodings),
            "channels": {name: each.to_json() for name, each in self.channels.items()},
        }

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        return canonical.dumps(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> DeviceState:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="device state", known=KNOWN, limit=MAX_BYTES)
        executorch = "a version such as 1.5.1"
        return cls(
            id=fields.label("id"),
            executorch=fields.optional("executorch", lambda name: fields.matching(name, _EXECUTORCH, executorch)),
            app=_app(fields.object("app")) if "app" in fields else None,
            backends=fields.optional("backends", fields.texts),
            operators=fields.optional("operators", fields.texts),
            ram_bytes=fields.optional("ram_bytes", fields.integer),
            free_disk=fields.optional("free_disk", fields.integer),
            quota=fields.optional("quota", fields.integer),
            holds=_holds(fields) if "holds" in fields else (),
            wants=_names(fields, "wants") if "wants" in fields else None,
            on_demand=_names(fields, "on_demand") if "on_demand" in fields else (),
            encodings=fields.texts("encodings", default=()),
            channels=_channels(fields.object("channels")) if "channels" in fields else {},
        )


def _app(fields: Fields) -> App:
    return App(fields.label("platform"), fields.integer("build"))


def _holds(fields: Fields) -> tuple[Descriptor, ...]:
    """The blobs that the device holds, each once."""
    return tuple(dict.fromkeys(descriptor(each) for each in fields.objects("holds")))


def _names(fields: Fields, name: str) -> tuple[str, ...]:
    texts = fields.texts(name)
    return tuple(Fields({name: text}, fields.path).name(name, what="adapter") for text in texts)


def _channels(fields: Fields) -> dict[str, ChannelState]:
    found = {}
    for name in fields.keys():  # noqa: SIM118 - not a dict
        Fields({"name": name}, fields.path).name("name", what="channel")
        found[name] = ChannelState.read(fields.object(name))
    return found
