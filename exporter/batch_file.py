"""The file of a batch: one JSON object a line, each an adapter's directory and what to publish it as.

    {"directory": "runs/pirate", "name": "pirate"}
    {"directory": "runs/json", "name": "json", "version": "2.0.0", "meta": {"owner": "ann"}}

Beside these: "foundation", "context", "adapter_name", "initial", "base_fingerprint", "allow_pickle". Paths are relative
to the file; what a line leaves out is as on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exporter.publish import PublishOptions
from registry import canonical
from registry.documents import Fields
from registry.errors import FormatError, InputError
from registry.lineage import merged

MAX_LINE = 1 << 20
_KEYS = {
    *("directory", "name", "version", "foundation", "meta", "context"),
    *("adapter_name", "initial", "base_fingerprint", "allow_pickle"),
}
_EXAMPLE = 'a line reads {"directory": "runs/pirate", "name": "pirate"}'


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a batch."""

    line: int
    directory: Path
    options: PublishOptions

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"line {self.line} ({self.options.name})"


def read_batch(path: Path, defaults: PublishOptions) -> tuple[Entry, ...]:
    """The entries of a batch file; what a line leaves out is as in `defaults`. Raises FormatError naming the line."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint=_EXAMPLE) from None
    entries = tuple(_entry(path, number, line, defaults) for number, line in enumerate(lines, 1) if line.strip())
    if not entries:
        raise FormatError(f"{path}: no adapter in it", hint=_EXAMPLE)
    return entries


def _entry(path: Path, number: int, line: bytes, defaults: PublishOptions) -> Entry:
    what = f"{path.name}, line {number}"
    if len(line) > MAX_LINE:
        raise FormatError(f"{what}: {len(line)} bytes, at most {MAX_LINE} are read")
    fields = Fields(canonical.loads(line, what=what), what)
    unknown = sorted(set(fields.keys()) - _KEYS)
    if unknown:
        raise FormatError(f"{what}: unknown key {unknown[0]!r}", hint=f"keys: {', '.join(sorted(_KEYS))}")
    meta = dict(fields.get("meta")) if fields.optional("meta", fields.object) else {}
    initial = fields.optional("initial", fields.text)
    given: dict[str, Any] = {
        "foundation": fields.optional("foundation", fields.label),
        "version": fields.optional("version", fields.version),
        "context": fields.integer("context", low=1) if "context" in fields else None,
        "adapter_name": fields.optional("adapter_name", fields.label),
        "initial": path.parent / initial if initial is not None else None,
        "base_fingerprint": fields.optional("base_fingerprint", fields.digest),
    }
    options = replace(
        defaults,
        name=fields.name("name", what="adapter"),
        lineage=merged(defaults.lineage, meta),
        allow_pickle=fields.flag("allow_pickle", default=defaults.allow_pickle),
        **{key: value for key, value in given.items() if value is not None},
    )
    if not options.foundation:
        raise FormatError(f"{what}: no foundation", hint="name one for all with --foundation, or in the line")
    return Entry(number, path.parent / fields.text("directory"), options)
