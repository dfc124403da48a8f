"""`ptdock init`, `verify` and `log`: the store as a whole."""

from __future__ import annotations

import time

import click

from console import documents, render
from console.app import App, pass_app
from console.options import COUNT
from console.verbs import Verb
from registry.artifacts import Report
from registry.errors import IntegrityError


@click.command(cls=Verb)
@pass_app
def init(app: App) -> None:
    """Make a store, or bring one to this version's schema."""
    from registry import reserve
    from registry.service import Registry

    with reserve.lent(app.home):
        registry = Registry.init(app.home)
    app.answer(
        {"home": str(app.home), "registry": registry.uuid, "fresh": registry.fresh},
        f"{'made a store in' if registry.fresh else 'the store is ready in'} {render.bold(render.clean(app.home))}",
    )


@click.command(cls=Verb)
@click.option("--fast", is_flag=True, help="Compare sizes and follow links; hash nothing.")
@pass_app
@click.pass_context
def verify(context: click.Context, app: App, fast: bool) -> None:
    """Check every blob against its digest, and every link.

    Exit code 7 when anything is damaged.
    """
    registry = app.registry()
    began = time.monotonic()
    with app.progress() as progress:
        progress("checking the store")
        report = registry.verify(fast=fast, progress=progress.bytes)
    took = time.monotonic() - began
    app.answer({**documents.report(report), "seconds": took}, _report_text(report, took))
    if not report.clean:
        context.exit(IntegrityError.exit_code)


def _report_text(report: Report, took: float) -> str:
    lines = [
        f"{render.bad('damaged')}  {render.clean(each.subject)}: {render.clean(each.message)}" for each in report.damage
    ]
    for index, each in reversed(list(enumerate(report.damage))):
        if each.dependants:
            lines.insert(index + 1, f"         needed: {render.clean('; '.join(each.dependants))}")
    lines += [render.dim(f"note     {render.clean(note)}") for note in report.notes]
    verdict = render.good("sound") if report.clean else render.bad(render.plural(len(report.damage), "fault"))
    checked = (
        f"{render.plural(report.blobs, 'blob')} ({render.size(report.size)}), {render.plural(report.builds, 'build')}"
    )
    return "\n".join([*lines, f"{verdict}: {checked}, {render.seconds(took)}"])


@click.command(cls=Verb)
@click.option("--limit", "-n", type=COUNT, default=20, show_default=True, help="How many events.")
@pass_app
def log(app: App, limit: int) -> None:
    """Show who changed what, and when, newest first."""
    events = app.registry().events(limit)
    rows = [(render.when(event.at), event.actor, event.action, event.subject) for event in events]
    found = [{**event.to_json(), "digest": str(event.digest)} for event in events]
    app.answer(found, render.table(("at (UTC)", "who", "did", "to"), rows))
