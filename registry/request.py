"""A release that is asked for in a file, as `release create --from FILE` reads it.

    {"adapters": ["pirate@1.2.0", "json"],
     "lines": [{"foundation": "smollm2",
                "requires": {"ram_bytes": 1500000000, "app": {"android": {"min_build": 512}}}}],
     "on_demand": ["robot"]}

Only `adapters` is needed. What `release show --json` prints is such a file, so a release can be written out, edited and
made again.
"""

from __future__ import annotations

from registry import canonical
from registry.composing import Contents, LineSpec
from registry.documents import Fields
from registry.errors import FormatError
from registry.lines import Needs

MAX_BYTES = 16 << 20
_ASKED = ("adapters", "lines", "on_demand")
_SHOWN = ("created", "digest", "holes", "offered", "release", "schema", "size", "state")  # what `release show` adds


def read_contents(data: bytes) -> Contents:
    """The contents that a file asks for. Raises FormatError, for a field that is none too."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"the file has {len(data)} bytes, but at most {MAX_BYTES} are allowed")
    fields = Fields(canonical.loads(data, what="release file"), "release file")
    unknown = sorted(set(fields.keys()) - {*_ASKED, *_SHOWN})
    if unknown:
        raise FormatError(f"release file: unknown field {unknown[0]!r}", hint=f"fields: {', '.join(_ASKED)}")
    return Contents(
        refs=fields.texts("adapters"),
        lines=tuple(_line(each) for each in fields.objects("lines")) if "lines" in fields else None,
        on_demand=fields.texts("on_demand", default=()),
    )


def _line(fields: Fields) -> LineSpec:
    requires = fields.object("requires") if "requires" in fields else Fields({}, fields.path)
    app = requires.object("app") if "app" in requires else Fields({}, fields.path)
    builds = {platform: app.object(platform).integer("min_build") for platform in app.keys()}  # noqa: SIM118 - not a dict
    return LineSpec(fields.label("foundation"), Needs(requires.optional("ram_bytes", requires.integer), builds))
