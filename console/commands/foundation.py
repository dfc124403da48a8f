"""`ptdock foundation`: one .ptd for a base and all of its adapters."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.commands import lifting, upgrade
from console.options import COUNT, PATH, out_options
from console.recipes import read_recipe, recipe_options
from console.templates import add_structure, check_structures, describe, template_document
from console.verbs import Noun
from registry.errors import InputError
from registry.names import check_name

if TYPE_CHECKING:
    from exporter.foundation import Exported, ExportOptions
    from registry.artifacts import Foundation, Template
    from registry.service import Registry


_SHOWN = 10  # dependants that people see; scripts get them all


@click.group(cls=Noun)
def foundation() -> None:
    """One .ptd for a base and all of its adapters."""


foundation.add_command(lifting.coverage)
foundation.add_command(lifting.diff)
foundation.add_command(upgrade.upgrade)


@foundation.command()
@click.argument("base", metavar="[BASE]", type=PATH, required=False)
@click.option("--module", metavar="PKG.MOD:FACTORY", help="Export what this function answers, in place of BASE.")
@click.option("--name", required=True, help="What to call it.")
@click.option("--context", type=COUNT, help="Positions of the base program; by default up to 2048.")
@recipe_options
@click.option(
    "--structure",
    "structures",
    multiple=True,
    metavar="SPEC",
    help="Also make this template, such as r8:q_proj,v_proj.",
)
@click.option("--replace-name", is_flag=True, help="Let the name mean these bytes from now on.")
@out_options
@click.option("--no-store", is_flag=True, help="With --out: write the files, record nothing.")
@pass_app
def export(
    app: App,
    /,
    base: Path | None,
    module: str | None,
    name: str,
    context: int | None,
    structures: tuple[str, ...],
    replace_name: bool,
    out: Path | None,
    force: bool,
    no_store: bool,
    **recipe: Any,
) -> None:
    """Export a checkpoint directory: its .ptd and base program.

    The base program answers without an adapter. An export that is recorded already is not repeated. A factory answers
    (module, inputs) or (module, inputs, dynamic_shapes), for any torch module.
    """
    from console.plain import written_text
    from exporter.foundation import ExportOptions

    check_name(name, what="foundation")
    recorded = {"--structure": structures, "--replace-name": replace_name}
    _check_out(out, force=force, no_store=no_store, recorded=recorded)
    check_structures(structures, base)
    options = ExportOptions(context, read_recipe(**recipe), replace_name)
    with app.throwaway(out) if no_store else nullcontext(app.registry()) as registry:
        with app.progress() as progress:
            made = _made(registry, base, module, name, options, progress)
            templates = [
                add_structure(registry, made.foundation, spec, made.base_program.context, base, progress)
                for spec in structures
            ]
        written = _written(app, registry, made, out, force=force)
        names = documents.names_of(registry.foundation_names(), made.foundation.file.digest)
    document = {**_exported_document(made, names, templates), "recorded": not no_store, "files": written}
    text = _exported_text(made, templates)
    app.answer(document, f"{text}\n{written_text(written)}" if written else text)


def _check_out(out: Path | None, *, force: bool, no_store: bool, recorded: dict[str, Any]) -> None:
    if out is None and (force or no_store):
        raise click.UsageError(f"{'--no-store' if no_store else '--force'} is for plain files: say where, --out DIR")
    given = [option for option, value in recorded.items() if value]
    if no_store and given:
        raise click.UsageError(f"{', '.join(given)}: not with --no-store, which records nothing")


def _written(app: App, registry: Registry, made: Exported, out: Path | None, *, force: bool) -> list[dict[str, Any]]:
    from console.plain import base_contents, put

    if out is None:
        return []
    wanted = base_contents(registry, made.foundation, made.base_program, made.name)
    return put(app, registry, wanted, out, force=force)


def _made(
    registry: Registry, base: Path | None, module: str | None, name: str, options: ExportOptions, progress: Any
) -> Exported:
    """Export the one of the two that is given; a recipe can be what names the factory."""
    from exporter.foundation import export_foundation
    from exporter.module_foundation import export_module

    module = module or options.recipe.module
    if module is not None and base is None:
        return export_module(registry, module, name, options, progress)
    if base is not None and module is None:
        return export_foundation(registry, base, name, options, progress)
    raise InputError(
        "give one of the two: a checkpoint's directory, or --module",
        hint=f"ptdock foundation export BASE --name {name}, or --module package.module:factory",
    )


def _exported_document(made: Exported, names: list[str], templates: list[Template]) -> dict[str, Any]:
    return {
        **documents.foundation(made.foundation, names, made.name),
        "fresh": made.fresh,
        "twin": str(made.twin) if made.twin else None,
        "seconds": made.seconds,
        "base_program": template_document(made.base_program),
        "templates": [template_document(each) for each in templates],
    }


def _exported_text(made: Exported, templates: list[Template]) -> str:
    verb = "retargeted" if made.twin else "exported" if made.fresh else "was exported already:"
    head = f"{render.good(made.name)} {verb} {made.foundation.file.digest}"
    program = made.base_program
    lines = [
        ("foundation", f"{render.size(made.foundation.file.size)}, {len(made.foundation.tensors)} tensors"),
        ("base program", f"{render.size(program.program_size)}, context {program.context}"),
        ("KV cache", render.size(program.kv_cache_bytes) if program.kv_cache_bytes else None),
        *(("template", describe(each)) for each in templates),
        *([("export", f"none needed: the one of {made.twin.short} serves these weights too")] if made.twin else []),
        ("took", render.seconds(made.seconds)),
    ]
    return f"{head}\n{render.fields(lines)}"


@foundation.command("list")
@pass_app
def list_(app: App) -> None:
    """List the foundations, oldest first."""
    registry = app.registry()
    names = registry.foundation_names()
    found = [documents.foundation(each, documents.names_of(names, each.file.digest)) for each in registry.foundations()]
    rows = [
        (", ".join(each["names"]) or "-", each["digest"][:19], render.size(each["size"]), weights(each["recipe"]))
        for each in found
    ]
    app.answer(found, render.table(("name", "digest", "size", "weights"), rows, right={2}))


def weights(recipe: dict[str, Any]) -> str:
    """How a recipe stores weights, in a few words: `fp16`, or `8da4w in groups of 32, 4-bit embedding`."""
    quantization = recipe["quantization"]
    if not quantization:
        return {"F32": "fp32", "F16": "fp16"}.get(str(recipe["dtype"]), str(recipe["dtype"]))
    bits = quantization["embedding_bits"]
    embedding = f"{bits}-bit embedding" if bits else "fp32 embedding"
    return f"{quantization['mode']} in groups of {quantization['group_size']}, {embedding}"


@foundation.command()
@click.argument("name")
@click.option("--card", type=PATH, metavar="FILE", help="Write what `adapter check` needs to this file (- prints it).")
@click.option("--tensors", is_flag=True, help="List the tensors too.")
@pass_app
def show(app: App, name: str, card: Path | None, tensors: bool) -> None:
    """Show a foundation, by name or digest."""
    registry = app.registry()
    found = registry.foundation(name)
    if card is not None:
        write_card(app, registry, found, card)
        return
    names = documents.names_of(registry.foundation_names(), found.file.digest)
    templates = registry.templates(found.file.digest)
    document = {
        **documents.foundation(found, names, name if name in names else None),
        "perplexity": perplexity_of(registry, found),
        "templates": [template_document(each) for each in templates],
        "tensors": tensors_of(registry, found),
        "dependants": list(registry.keeper().dependants(found.file.digest)),
    }
    app.answer(document, _foundation_text(document, templates, with_tensors=tensors))


def tensors_of(registry: Registry, found: Foundation) -> list[dict[str, Any]]:
    """A foundation's tensor table, with how each tensor derives from the base and from which of its tensors."""
    from exporter.derivation import Derivations

    derive = Derivations.of(registry, found)
    return [{**each.to_json(), "derive": (made := derive(each)).how, "from": made.source} for each in found.tensors]


def perplexity_of(registry: Registry, found: Foundation) -> dict[str, Any] | None:
    """What quantization did to the model's perplexity: `tokens`, `before`, `after`; None where nothing was measured."""
    from registry import canonical

    table = canonical.loads(registry.blobs.read(found.modules.digest), what="module table")
    measured: dict[str, Any] | None = table.get("perplexity")
    return measured


def write_card(app: App, registry: Registry, found: Foundation, target: Path) -> None:
    """Write a foundation's card: what a trainer needs to check an adapter without a store."""
    from console.plain import write
    from exporter.linker import card_of
    from registry import canonical
    from registry.digest import Descriptor

    data = canonical.dumps(card_of(registry, found).to_json())
    if str(target) == "-":
        click.echo(data, nl=False)
        return
    write(target, data)
    app.answer(
        {"file": str(target), **Descriptor.of(data).to_json(), "foundation": str(found.file.digest)},
        f"wrote {render.clean(target)} ({render.size(len(data))})",
    )


def _foundation_text(document: dict[str, Any], templates: tuple[Template, ...], *, with_tensors: bool) -> str:
    recipe = document["recipe"]
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(recipe["libraries"].items()))
    text = render.fields(
        [
            ("name", ", ".join(document["names"]) or "(none)"),
            ("digest", document["digest"]),
            ("size", f"{render.size(document['size'])}, {document['tensor_count']} tensors"),
            ("base", document["base"]),
            ("weights", f"{weights(recipe)}, {recipe['backend']}"),
            *([("perplexity", _perplexity_text(measured))] if (measured := document["perplexity"]) else []),
            ("made by", libraries),
            ("used by", _used_by(document["dependants"])),
            *(("template", describe(each)) for each in templates),
        ]
    )
    if not with_tensors:
        return text
    rows = [
        (render.several(of["names"]) or of["key"], of["dtype"], of["shape"], of["derive"], render.size(of["size"]))
        for of in document["tensors"]
    ]
    return text + "\n\n" + render.table(("tensor", "dtype", "shape", "derived", "size"), rows, right={4})


def _perplexity_text(measured: dict[str, Any]) -> str:
    before, after = measured["before"], measured["after"]
    change = 100 * (after / before - 1)
    return f"{after:.2f}, {before:.2f} before quantization ({change:+.1f} %), on {measured['tokens']} tokens"


def _used_by(dependants: list[str]) -> str:
    more = len(dependants) - _SHOWN
    return ", ".join(dependants[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


@foundation.command()
@click.argument("name")
@pass_app
def verify(app: App, name: str) -> None:
    """Recompute every digest of a foundation from its file."""
    from registry.links import verify_foundation

    registry = app.registry()
    found = registry.foundation(name)
    with app.progress() as progress:
        progress.phase("hashing the foundation", found.file.size)
        verify_foundation(registry.blobs.path(found.file.digest), found, progress.bytes)
    app.answer(
        {"name": name, **found.file.to_json(), "sound": True},
        f"{render.good('sound')}: {found.file.digest}, {render.size(found.file.size)}",
    )


@foundation.command()
@click.argument("name")
@pass_app
def remove(app: App, name: str) -> None:
    """Forget a foundation that nothing uses; its bytes stay until gc."""
    removed = app.registry().remove_foundation(name)
    app.answer(
        {"name": name, **removed.file.to_json(), "removed": True},
        f"removed {render.bold(name)} ({removed.file.digest})",
    )
