"""The release document: an immutable, numbered blob that pins, by digest and size, everything a device may fetch.

A release has *lines* in order of preference. A line is one foundation, what it requires of a device, and one
build per adapter; all lines hold the same adapters, unless the release says that it has holes. Manifests pin
release documents; nothing in a document is a path.

    document = ReleaseDocument(release=12, lines=(Line(...),))
    data = document.to_bytes()                      # deterministic: equal documents have equal bytes
    assert ReleaseDocument.from_bytes(data) == document
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.documents import SCHEMA, Fields, descriptor, opened
from registry.errors import FormatError

MAX_BYTES = 256 << 20  # a reader stops at the pinned size; this bounds a document that nothing pins
DELIVERIES = ("prefetch", "on-demand")
LINE_KNOWN = (
    "adapters app backends base delivery digest encodings executorch file format foundation guaranteed min min_build"
    " name operators prompt ram_bytes requires segments self_test size table template tokenizer type version"
)
KNOWN = f"{LINE_KNOWN} critical holes lines release schema"


@dataclass(frozen=True, slots=True)
class FoundationEntry:
    """The line's `.ptd`. `segments` is the optional table that lets a device fetch only what changed."""

    file: Descriptor
    segments: Descriptor | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        return {**self.file.to_json(), **_present(segments=_pin(self.segments))}

    @classmethod
    def read(cls, fields: Fields) -> FoundationEntry:
        """From the document. Raises FormatError."""
        return cls(descriptor(fields), fields.optional("segments", fields.descriptor))


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokenizer file that the line's programs were made for; `format` is a label such as `hf-json`."""

    format: str
    file: Descriptor

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        return {"format": self.format, "file": self.file.to_json()}

    @classmethod
    def read(cls, fields: Fields) -> Tokenizer:
        """From the document. Raises FormatError."""
        return cls(fields.name("format", what="tokenizer format"), fields.descriptor("file"))


@dataclass(frozen=True, slots=True)
class Requires:
    """What a line needs of a device.

    ExecuTorch versions are (major, minor): below `minimum` refused, above `guaranteed` offered with a warning.
    `ram_bytes` is the least memory of the device; `app` the least build of the app, per platform.
    """

    minimum: tuple[int, int]
    guaranteed: tuple[int, int]
    backends: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    ram_bytes: int | None = None
    app: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minimum > self.guaranteed:
            raise FormatError(f"requires.executorch: min {self.minimum} is above guaranteed {self.guaranteed}")

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        app = {platform: {"min_build": build} for platform, build in self.app.items()}
        return {
            "executorch": {"min": list(self.minimum), "guaranteed": list(self.guaranteed)},
            "backends": list(self.backends),
            "operators": list(self.operators),
            **_present(ram_bytes=self.ram_bytes, app=app or None),
        }

    @classmethod
    def read(cls, fields: Fields) -> Requires:
        """From the document. Raises FormatError."""
        executorch = fields.object("executorch")
        app = fields.object("app") if "app" in fields else Fields({}, fields.path)
        return cls(
            minimum=executorch.pair("min"),
            guaranteed=executorch.pair("guaranteed"),
            backends=fields.texts("backends"),
            operators=fields.texts("operators", default=()),
            ram_bytes=fields.optional("ram_bytes", fields.integer),
            app={platform: app.object(platform).integer("min_build") for platform in app.keys()},  # noqa: SIM118 - not a dict
        )


@dataclass(frozen=True, slots=True)
class Factors:
    """The encoding `factors`: the device writes the `.pte` itself from a hollow template and the trained factors.

    `file` are the factors, `template` the hollow program, `table` its relocation table.
    """

    file: Descriptor
    template: Descriptor
    table: Descriptor

    def pins(self) -> tuple[Descriptor, Descriptor, Descriptor]:
        """What a device fetches to write the program."""
        return self.template, self.table, self.file

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        links = {"template": self.template.to_json(), "table": self.table.to_json()}
        return {"type": "factors", **self.file.to_json(), **links}

    @classmethod
    def read(cls, fields: Fields) -> Factors:
        """From the document. Raises FormatError."""
        return cls(descriptor(fields), fields.descriptor("template"), fields.descriptor("table"))


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """One build: the adapter's name and version, and its `.pte`.

    `delivery` is `prefetch` or `on-demand` (fetched at first use). `self_test` is what the device replays after
    install, `prompt` the adapter's own chat format (registry.prompt), `factors` the smaller encoding.
    """

    name: str
    version: str
    file: Descriptor
    delivery: str = "prefetch"
    self_test: Descriptor | None = None
    prompt: Descriptor | None = None
    factors: Factors | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        encodings = [self.factors.to_json()] if self.factors else None
        optional = _present(self_test=_pin(self.self_test), prompt=_pin(self.prompt), encodings=encodings)
        return {
            "name": self.name,
            "version": self.version,
            **self.file.to_json(),
            "delivery": self.delivery,
            **optional,
        }

    @classmethod
    def read(cls, fields: Fields) -> AdapterEntry:
        """From the document; encodings of an unknown type are ignored. Raises FormatError."""
        encodings = list(fields.objects("encodings")) if "encodings" in fields else []
        factors = [Factors.read(each) for each in encodings if each.label("type") == "factors"]
        return cls(
            name=fields.name("name", what="adapter"),
            version=fields.version("version"),
            file=descriptor(fields),
            delivery=fields.choice("delivery", DELIVERIES) if "delivery" in fields else "prefetch",
            self_test=fields.optional("self_test", fields.descriptor),
            prompt=fields.optional("prompt", fields.descriptor),
            factors=factors[0] if factors else None,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One foundation, its base program, what both require, and one build per adapter (unique names)."""

    foundation: FoundationEntry
    base: Descriptor
    requires: Requires
    adapters: tuple[AdapterEntry, ...]
    tokenizer: Tokenizer | None = None
    prompt: Descriptor | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for entry in self.adapters:
            if entry.name in seen:
                raise FormatError(f"release: the adapter {entry.name!r} stands twice in one line", adapter=entry.name)
            seen.add(entry.name)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        tokenizer = self.tokenizer.to_json() if self.tokenizer else None
        return {
            "foundation": self.foundation.to_json(),
            "base": self.base.to_json(),
            "requires": self.requires.to_json(),
            "adapters": [entry.to_json() for entry in self.adapters],
            **_present(tokenizer=tokenizer, prompt=_pin(self.prompt)),
        }

    def shared(self) -> list[Descriptor]:
        """What the line pins beside its foundation and its adapters."""
        tokenizer = self.tokenizer.file if self.tokenizer else None
        return [pin for pin in (self.foundation.segments, self.base, tokenizer, self.prompt) if pin is not None]

    @classmethod
    def read(cls, fields: Fields) -> Line:
        """From the document. Raises FormatError."""
        return cls(
            foundation=FoundationEntry.read(fields.object("foundation")),
            base=fields.descriptor("base"),
            requires=Requires.read(fields.object("requires")),
            adapters=tuple(AdapterEntry.read(each) for each in fields.objects("adapters")),
            tokenizer=Tokenizer.read(fields.object("tokenizer")) if "tokenizer" in fields else None,
            prompt=fields.optional("prompt", fields.descriptor),
        )


@dataclass(frozen=True, slots=True)
class ReleaseDocument:
    """A release: its number (from 1) and its lines in order of preference.

    `holes` records the explicit choice that lines may hold different adapters.
    """

    release: int
    lines: tuple[Line, ...]
    holes: bool = False

    def __post_init__(self) -> None:
        if not self.lines:
            raise FormatError(f"release {self.release}: no line, but at least one is needed")
        sets = [frozenset(entry.name for entry in line.adapters) for line in self.lines]
        missing = sorted(sets[0].union(*sets) - sets[0].intersection(*sets))
        if missing and not self.holes:
            raise FormatError(
                f"release {self.release}: {', '.join(missing)} not in every line",
                hint="build them for every foundation, or allow holes explicitly",
                adapters=missing,
            )

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        lines = [line.to_json() for line in self.lines]
        extra = {"holes": True} if self.holes else {}
        return {"schema": SCHEMA, "critical": [], "release": self.release, "lines": lines, **extra}

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        return canonical.dumps(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> ReleaseDocument:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="release", known=KNOWN, limit=MAX_BYTES)
        return cls(
            release=fields.integer("release", low=1),
            lines=tuple(Line.read(each) for each in fields.objects("lines")),
            holes=fields.flag("holes", default=False),
        )

    def shared(self) -> list[Descriptor]:
        """What the lines pin beside their foundations and their adapters, each once."""
        return list(dict.fromkeys(pin for line in self.lines for pin in line.shared()))

    def blobs(self, *, revoked: Collection[Digest] = ()) -> dict[Descriptor, None]:
        """Every blob that the document pins, each once, in its order; nothing of builds that are revoked."""
        found: dict[Descriptor | None, None] = {}
        for line in self.lines:
            found |= dict.fromkeys((line.foundation.file, *line.shared()))
            for entry in line.adapters:
                if entry.file.digest not in revoked:
                    found |= dict.fromkeys((entry.file, entry.self_test, entry.prompt))
                    found |= dict.fromkeys(entry.factors.pins() if entry.factors else ())
        return {pin: None for pin in found if pin is not None}


def _pin(pin: Descriptor | None) -> dict[str, Any] | None:
    return pin.to_json() if pin else None


def _present(**values: Any) -> dict[str, Any]:
    """The values that are there: an optional field is absent, never null."""
    return {name: value for name, value in values.items() if value is not None}
