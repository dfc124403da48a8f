"""`ptdock foundation upgrade`: the programs of a foundation, made again by the ExecuTorch that is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.commands.lifting import step_document
from console.options import PATH
from console.templates import describe, template_document
from console.verbs import Verb
from registry.errors import AdapterRefused

if TYPE_CHECKING:
    from exporter.rebase import Step
    from exporter.upgrade import Renewed, Upgraded
    from registry.service import Registry

_OUTCOMES = ("built", "unchanged", "skipped", "refused")


@click.command(cls=Verb)
@click.argument("name")
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now.")
@click.option("--replace-name", is_flag=True, help="If another .ptd comes out, let the name mean it from now on.")
@pass_app
@click.pass_context
def upgrade(running: click.Context, app: App, name: str, base: Path | None, *, replace_name: bool) -> None:
    """Make a foundation's programs anew with the installed ExecuTorch.

    Base programs and templates are exported, and every build is relinked on them; the old ones stay for old apps. The
    .ptd stays when its bytes come out the same. What is done already is passed over, so the command can be repeated.
    Exit code 4 when the gate refused any build.
    """
    from exporter.upgrade import UpgradeOptions, relinked
    from exporter.upgrade import upgrade as upgrade_foundation

    registry = app.registry()
    steps: list[Step] = []
    with app.progress() as progress:
        done = upgrade_foundation(registry, name, UpgradeOptions(base, replace_name), progress)
        for step in relinked(registry, done, progress):
            steps.append(step)
            if step.outcome in {"skipped", "refused"}:
                progress.note(f"{step.outcome}  {step.ref}: {render.clean(step.reason)}")
    counts: Counter[str] = Counter(step.outcome for step in steps)
    app.answer(_document(registry, name, done, steps, counts), _text(name, done, counts))
    if counts["refused"]:
        running.exit(AdapterRefused.exit_code)


def _document(
    registry: Registry, name: str, done: Upgraded, steps: Sequence[Step], counts: Counter[str]
) -> dict[str, Any]:
    names = documents.names_of(registry.foundation_names(), done.after.file.digest)
    return {
        **documents.foundation(done.after, names, name if name in names else None),
        "kept": done.kept,
        "before": str(done.before.file.digest),
        "executorch": done.executorch,
        "templates": [
            {**template_document(each.template), "before": each.before.executorch, "made": _made(each)}
            for each in done.templates
        ],
        **{outcome: counts[outcome] for outcome in _OUTCOMES},
        "adapters": [step_document(step) for step in steps],
    }


def _made(each: Renewed) -> str:
    """`exported` just now, or `known` from before; `same` when its bytes are those of the version before."""
    if each.same:
        return "same"
    return "exported" if each.fresh else "known"


def _text(name: str, done: Upgraded, counts: Counter[str]) -> str:
    if not done.templates:
        return f"{render.good(name)} is up to date: ExecuTorch {done.executorch} made all of its programs"
    words = {"same": "the same bytes", "exported": "exported", "known": "was there already"}
    kept = "kept, its bytes came out the same" if done.kept else f"other bytes; before: {done.before.file.digest}"
    olds = ", ".join(dict.fromkeys(each.before.executorch for each in done.templates))
    lines = [
        ("foundation", f"{done.after.file.digest}, {render.size(done.after.file.size)}: {kept}"),
        *(("program", f"{describe(each.template)}: {words[_made(each)]}") for each in done.templates),
        ("builds", ", ".join(f"{counts[each]} {each}" for each in _OUTCOMES if counts[each]) or "none"),
    ]
    verb = "upgraded" if any(each.fresh for each in done.templates) else "was upgraded already:"
    return f"{render.good(name)} {verb} from ExecuTorch {olds} to {done.executorch}\n{render.fields(lines)}"
