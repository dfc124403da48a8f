"""The lines of a release, by rule: which builds stand on which foundation, and what devices read of each. Pure.

lines = choose_lines(wanted, order, given=True, holes=False)
write_line(lines[0], Parts(foundation_file, templates, base))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from registry import release as wire
from registry.artifacts import Base, Build, Line, Template, Version
from registry.digest import Descriptor, Digest
from registry.errors import Conflict

_TOKENIZERS = {"tokenizer.json": "hf-json", "tokenizer.model": "sentencepiece"}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a line needs beyond what its programs do: the device's memory in bytes, the app's build per platform."""

    ram_bytes: int | None = None
    app: Mapping[str, int] = field(default_factory=dict)

    def over(self, others: Needs) -> Needs:
        """These needs, with the others' where these say nothing."""
        ram = others.ram_bytes if self.ram_bytes is None else self.ram_bytes
        return Needs(ram, {**others.app, **self.app})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that a release is to hold, and its builds that are not revoked, oldest first."""

    version: Version
    builds: tuple[Build, ...]

    @property
    def ref(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.version.adapter}@{self.version.version}"

    def on(self, foundation: Digest) -> Build | None:
        """The newest build on a foundation."""
        found = [build for build in self.builds if build.foundation == foundation]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a line's document is written from, besides the builds: its foundation's file, templates and base.

    `segments` is the foundation's segment table, `needs` what the line needs beyond its programs, `on_demand` the
    adapters that are fetched at first use.
    """

    file: Descriptor
    templates: tuple[Template, ...]
    base: Base
    segments: Descriptor | None = None
    needs: Needs = field(default_factory=Needs)
    on_demand: Collection[str] = ()


def choose_lines(wanted: Sequence[Wanted], order: Sequence[Digest], *, given: bool, holes: bool) -> tuple[Line, ...]:
    """The lines of a release on the foundations in `order`, with the newest usable build of each adapter.

    `given`: the caller named these foundations, so each becomes a line; else only complete ones do, or with `holes`
    those that have any build. Raises Conflict with `values["matrix"]` when adapters are missing, or when a line would
    hold two versions of one.
    """
    lines = [Line(foundation, _builds_on(wanted, foundation)) for foundation in order]
    names = {each.version.adapter for each in wanted}
    complete = [line for line in lines if line.builds.keys() == names]
    chosen = lines if given else complete or ([line for line in lines if line.builds] if holes else [])
    if not chosen or (len(complete) < len(chosen) and not holes):
        raise _incomplete(wanted, chosen or lines)
    nowhere = names - {name for line in chosen for name in line.builds}
    if nowhere:  # a hole is what another line has: an adapter of no line would vanish without a word
        raise _incomplete([each for each in wanted if each.version.adapter in nowhere], chosen)
    return tuple(chosen)


def write_line(line: Line, parts: Parts) -> wire.Line:
    """What devices read of a line. Raises Conflict when its foundation has no base program."""
    used = {build.template for build in line.builds.values()}
    templates = [template for template in parts.templates if template.digest in used]
    program = _base_program(line.foundation, parts.templates, templates)
    templates += [each for each in parts.templates if each.digest == program.digest]
    entries = [_entry(build, parts.templates) for _, build in sorted(line.builds.items())]
    return wire.Line(
        foundation=wire.FoundationEntry(parts.file, parts.segments),
        base=program.hollow,
        requires=_requires(line, templates, parts.needs),
        adapters=tuple(
            replace(entry, delivery="on-demand") if entry.name in parts.on_demand else entry for entry in entries
        ),
        tokenizer=_tokenizer(parts.base),
        prompt=parts.base.prompt,
    )


def _builds_on(wanted: Sequence[Wanted], foundation: Digest) -> dict[str, Build]:
    found: dict[str, Build] = {}
    for each in sorted(wanted, key=lambda one: one.ref):
        build = each.on(foundation)
        if build is None:
            continue
        if build.adapter in found:
            raise Conflict(
                f"{build.adapter} {found[build.adapter].version} and {build.version} both have a build on {foundation}",
                hint="a line holds one version of each adapter: name one of them",
            )
        found[build.adapter] = build
    return found


def _incomplete(wanted: Sequence[Wanted], lines: Sequence[Line]) -> Conflict:
    matrix = {
        str(line.foundation): {each.ref: each.on(line.foundation) is not None for each in wanted} for line in lines
    }
    missing = [
        f"{ref} on {foundation[:19]}" for foundation, row in matrix.items() for ref, there in row.items() if not there
    ]
    without = [each.ref for each in wanted if not each.builds]
    allow = "" if without else ", or allow holes explicitly: --allow-holes (one of the lines must have it)"
    return Conflict(
        f"no build for {', '.join(without or missing)}",
        hint=f"publish the versions on that foundation, name other lines or leave them out{allow}",
        matrix=matrix,
    )


def _entry(build: Build, templates: Sequence[Template]) -> wire.AdapterEntry:
    parts = build.parts
    template = next(template for template in templates if template.digest == build.template)
    return wire.AdapterEntry(
        build.adapter,
        build.version,
        build.file,
        self_test=parts.get("self_test"),
        prompt=parts.get("prompt"),
        factors=wire.Factors(parts["wire"], template.hollow, parts["wire_table"]) if "wire" in parts else None,
    )


def _base_program(foundation: Digest, templates: Sequence[Template], used: Sequence[Template]) -> Template:
    """The newest program without an adapter, if possible made for the same context and ExecuTorch as the builds."""
    programs = [template for template in templates if not template.structure["modules"]]
    if not programs:
        raise Conflict(f"{foundation} has no base program", hint="run `ptdock foundation export` again: it adds one")
    alike = {(template.context, template.executorch) for template in used}
    return ([program for program in programs if (program.context, program.executorch) in alike] or programs)[-1]


def _requires(line: Line, templates: Sequence[Template], needs: Needs) -> wire.Requires:
    """What runs all of these programs. Raises Conflict when no version of ExecuTorch is sure to run them all."""
    spans = _spans(templates)
    minimum, guaranteed = max(low for low, _ in spans), min(high for _, high in spans)
    if minimum > guaranteed:
        raise Conflict(
            f"the newest builds on {line.foundation} are of ExecuTorch versions too far apart: "
            f"some need {_dotted(minimum)}, others are guaranteed up to {_dotted(guaranteed)}",
            hint="bring all of them to one version: ptdock foundation upgrade NAME",
            minimum=list(minimum),
            guaranteed=list(guaranteed),
        )
    runtimes = [template.runtime for template in templates]
    return wire.Requires(
        minimum=minimum,
        guaranteed=guaranteed,
        backends=tuple(sorted({name for runtime in runtimes for name in runtime.backends})),
        operators=tuple(sorted({name for runtime in runtimes for name in runtime.operators})),
        ram_bytes=needs.ram_bytes,
        app=dict(sorted(needs.app.items())),
    )


def _spans(templates: Sequence[Template]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """For each program, once: the least version that runs it, the last one that surely does.

    The same bytes that several versions of ExecuTorch wrote run on all that any of them promises.
    """
    found: dict[Digest, tuple[tuple[int, int], tuple[int, int]]] = {}
    for each in templates:
        low, high = found.get(each.digest, (each.runtime.minimum, each.runtime.guaranteed))
        found[each.digest] = min(low, each.runtime.minimum), max(high, each.runtime.guaranteed)
    return list(found.values())


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _tokenizer(base: Base) -> wire.Tokenizer | None:
    for name, form in _TOKENIZERS.items():
        if name in base.files:
            return wire.Tokenizer(form, base.files[name])
    return None
