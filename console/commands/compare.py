"""`ptdock adapter show` and `diff`: what an adapter does to its base, and what changed between two."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.commands.prove import proof_lines, proof_of
from console.options import foundation_option
from console.verbs import Verb
from registry import canonical, lineage
from registry.errors import NotFound, PtdockError

if TYPE_CHECKING:
    from exporter.changes import Changes
    from registry.artifacts import Build
    from registry.service import Registry

_SHOWN = 60
Row = Mapping[str, Any]


@click.command(cls=Verb)
@click.argument("ref", metavar="NAME[@V]")
@foundation_option(required=False)
@click.option("--modules", is_flag=True, help="A line for each module.")
@click.option("--fast", is_flag=True, help="No figures: the weights are not read.")
@pass_app
def show(app: App, ref: str, foundation: str | None, modules: bool, fast: bool) -> None:
    """Show a version: its build, lineage, warnings, figures.

    How far each module's weight moves, relative to the base's (Frobenius norms), and the effective rank of its
    factors: exp of the entropy of their product's singular values (Roy and Vetterli, 2007).
    """
    from exporter.structure import Structure

    registry = app.registry()
    version = registry.version(ref)
    builds = registry.builds(f"{version.adapter}@{version.version}")
    build = _chosen(registry, builds, foundation)
    source = registry.source(version)
    document = {
        **documents.version(version),
        **documents.build(build),
        "structure": Structure.from_json(registry.template_of(build).structure).describe(),
        "files": {name: file.to_json() for name, file in source.files.items()},
        "attachments": {name: file.to_json() for name, file in source.attachments.items()},
        "parts": {role: file.to_json() for role, file in build.parts.items()},
        "builds": documents.builds(builds),
        "proof": proof_of(registry, build),
        **({} if fast else _measured(app, registry, build)),
    }
    app.answer(document, _version_text(document, each=modules))


@click.command(cls=Verb)
@click.argument("first", metavar="NAME@V")
@click.argument("second", metavar="NAME@V")
@foundation_option(required=False)
@click.option("--modules", is_flag=True, help="A line for each module.")
@pass_app
def diff(app: App, first: str, second: str, foundation: str | None, modules: bool) -> None:
    """Show what changed from one version to another.

    Fields of the config, tensors, structure, lineage, and how far each weight moves. By default on the newest
    foundation that both have.
    """
    from exporter.changes import builds_of, changes

    registry = app.registry()
    one, two = builds_of(registry, first, second, foundation)
    with app.progress() as progress:
        progress("reading the weights")
        changed = changes(registry, one, two)
    app.answer(changed.to_json(), _changes_text(changed, each=modules))


def _chosen(registry: Registry, builds: Sequence[Build], foundation: str | None) -> Build:
    """The newest build on a foundation, or on any; one that is revoked only where no other is left."""
    from exporter.changes import newest_builds

    found = newest_builds(builds)
    wanted = registry.foundation(foundation).file.digest if foundation else next(reversed(found))
    if wanted not in found:
        raise NotFound("this version has no build on that foundation", hint="publish it on that foundation first")
    return found[wanted]


def _measured(app: App, registry: Registry, build: Build) -> dict[str, Any]:
    """The config and the figures; what cannot be read is said, and keeps nothing else back."""
    from exporter.changes import figures
    from exporter.opened import opened

    try:
        with app.progress() as progress:
            progress("reading the weights")
            adapter = opened(registry, build)
            found = [each.to_json() for each in figures(registry, adapter)]
    except PtdockError as error:
        app.note(f"no figures: {error.message}")
        return {"config": None, "modules": None}
    return {"config": adapter.config, "modules": found}


def _version_text(document: Row, *, each: bool) -> str:
    head = render.fields(
        [
            ("adapter", f"{document['name']}@{document['version']}"),
            ("digest", document["digest"]),
            ("size", f"{render.size(document['size'])}, {render.size(document['factors']['size'])} of it factors"),
            ("structure", document["structure"]),
            ("foundation", document["foundation"]),
            ("source", document["source"]),
            ("published", f"{render.when(document['created'])} UTC"),
            ("yanked", document["yanked"]),
            ("revoked", document["revoked"]),
            ("builds", len(document["builds"])),
            *proof_lines(document["proof"]),
            *lineage.flat(document["lineage"]),
        ]
    )
    rows = document.get("modules") or []
    warnings = render.findings([("warning", document["name"], text, "") for text in document["warnings"]])
    table = _figures_table(rows, each=each)
    notes = "\n".join(render.dim(note) for note in dict.fromkeys(row["note"] for row in rows) if note)
    return "\n\n".join(part for part in (head, table, notes, warnings) if part)


def _figures_table(rows: Sequence[Row], *, each: bool) -> str:
    """One line for each module, or for all modules of one kind and structure: the mean, and where it moves most."""
    header = ("module", "moves by", "at most", "effective rank", "bytes")
    lines = []
    for name, group in [(row["name"], [row]) for row in rows] if each else _kinds(rows):
        most = max(group, key=lambda row: row["relative"] or 0)
        at_most = f"{_percent(most['relative'])} {most['name']}" if len(group) > 1 and most["relative"] else ""
        ranks = _mean(row["effective_rank"] for row in group)
        nominal = group[0]["structure"].get("lora") or group[0]["structure"].get("embedding")
        lines.append(
            (
                name,
                _percent(_mean(row["relative"] for row in group)),
                at_most,
                f"{ranks:.1f} of {nominal}" if ranks is not None else "",
                render.size(sum(row["size"] for row in group)),
            )
        )
    return render.table(header, lines, right={1, 4})


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Modules by the last word of their name and their structure: `30 q_proj`."""
    groups: dict[tuple[str, bytes], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["name"].rpartition(".")[2], canonical.dumps(row["structure"])].append(row)
    for (last, _), group in groups.items():
        yield (f"{len(group)} {last}" if len(group) > 1 else group[0]["name"]), group


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}".replace("%", " %")


def _changes_text(changed: Changes, *, each: bool) -> str:
    document = changed.to_json()
    before, after = document["before"], document["after"]
    head = f"{render.bold(_ref(before))} → {render.bold(_ref(after))}"
    if changed.same_program:
        head += f": the same program, {after['digest']}"
    sizes = [f"{render.size(side['size'])}, {render.size(side['factors']['size'])} of it factors" for side in
             (before, after)]  # fmt: skip
    lines = [
        ("structure", _arrow(before["structure"], after["structure"])),
        ("size", _arrow(*sizes)),
        ("foundation", _arrow(before["foundation"], after["foundation"])),
        *((f"config {name}", _both(change)) for name, change in document["config"].items()),
        *((f"lineage {name}", _both(change)) for name, change in _flat(document["lineage"])),
        *((f"file {name}", _fate(change)) for name, change in document["files"].items()),
        ("tensors", _fates(document["tensors"])),
        ("modules", _module_fates(document["structure"])),
    ]
    table = _moves_table(document["modules"], each=each)
    notes = "\n".join(render.dim(note) for note in document["notes"])
    return "\n\n".join(part for part in (f"{head}\n{render.fields(lines)}", table, notes) if part)


def _ref(side: Row) -> str:
    return f"{side['name']}@{side['version']}"


def _arrow(before: str, after: str) -> str | None:
    return None if before == after else f"{before} → {after}"


def _flat(changes: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """Lineage changes with dotted keys, so that one member of an object is one line."""
    from exporter.compare import differences

    sides = (
        dict(lineage.flat({name: change[side] for name, change in changes.items() if side in change}))
        for side in ("before", "after")
    )
    return list(differences(*sides).items())


def _both(change: Row) -> str:
    return " → ".join(_value(change[side]) if side in change else "(none)" for side in ("before", "after"))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else canonical.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _fate(change: Row) -> str:
    return "changed" if len(change) == 2 else "added" if "after" in change else "removed"


def _fates(tensors: Mapping[str, Sequence[str]] | None) -> str | None:
    return ", ".join(f"{len(names)} {fate}" for fate, names in tensors.items() if names) if tensors else None


def _module_fates(structure: Mapping[str, Row]) -> str | None:
    fates = [_fate(change) for name, change in structure.items() if name != "equal factors"]
    said = [f"{fates.count(fate)} {fate}" for fate in ("added", "removed", "changed") if fate in fates]
    if "equal factors" in structure:
        said.append("other factors are equal")
    return ", ".join(said) or None


def _moves_table(modules: Sequence[Row], *, each: bool) -> str:
    """How far weights are from those of the version before, beside what each version does to the base."""
    header = ("module", "moved by", "before", "after", "effective rank")
    rows = [{**(row["after"] or row["before"]), **row} for row in modules]
    lines = []
    for name, group in [(row["name"], [row]) for row in rows] if each else _kinds(rows):
        before, after = ([row[side] or {} for row in group] for side in ("before", "after"))
        ranks = [_mean(row.get("effective_rank") for row in side) for side in (before, after)]
        lines.append(
            (
                name,
                _percent(_mean((row["moved"] or {}).get("relative") for row in group)),
                _percent(_mean(row.get("relative") for row in before)),
                _percent(_mean(row.get("relative") for row in after)),
                " → ".join("-" if rank is None else f"{rank:.1f}" for rank in ranks),
            )
        )
    return render.table(header, lines, right={1, 2, 3})
