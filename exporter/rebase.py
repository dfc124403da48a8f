"""`ptdock adapter rebase`: builds on another foundation of the same base, from the stored sources. Same versions.

    for step in rebase(registry, "smollm2", "smollm2-8da4w"):
        print(step.ref, step.outcome)

A build that is there already is passed over, so a rebase that was stopped goes on where it was. What cannot be built
is told and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.linker import Linker
from exporter.publish import PublishOptions, publish_with
from exporter.sources import Progress, no_progress
from exporter.stored import laid_out
from registry.artifacts import Foundation
from registry.catalog.matrix import Coverage
from registry.digest import Digest
from registry.errors import AdapterRefused, Conflict, InputError, IntegrityError, NotFound
from registry.names import parse_reference
from registry.service import Registry

Outcome = Literal["built", "unchanged", "skipped", "refused"]


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one version: the build's program when there is one, else why not, with the gate's findings."""

    ref: str
    outcome: Outcome
    program: Digest | None = None
    reason: str | None = None
    findings: tuple[object, ...] = ()


def rebase(
    registry: Registry,
    source: str,
    target: str,
    refs: Sequence[str] = (),
    *,
    base: Path | None = None,
    context: int | None = None,
    progress: Progress = no_progress,
) -> Iterator[Step]:
    """Build on `target` what has a usable build on `source`: all of it, or `refs` (`NAME` or `NAME@VERSION`).

    `base` and `context` are as for a publish; only a structure that `target` has no template of needs them. Raises
    NotFound, InputError and Conflict before anything is built, and Unavailable without torch where that is needed.
    """
    before, after = registry.foundation(source), registry.foundation(target)
    _check(before, after)
    wanted = list(_wanted(registry, before, refs))
    return _steps(registry, before, after, wanted, PublishOptions(target, "", base=base, context=context), progress)


def _check(before: Foundation, after: Foundation) -> None:
    if before.file.digest == after.file.digest:
        raise InputError(f"{before.file.digest} is both foundations", hint="name another one: --to")
    if before.base != after.base:
        raise Conflict(
            "the foundations are of different bases: an adapter of one means nothing on the other",
            hint="train the adapters on the new base, and publish them",
            expected=str(before.base),
            actual=str(after.base),
        )


def _wanted(registry: Registry, before: Foundation, refs: Sequence[str]) -> Iterator[Coverage]:
    """The versions with a build on the first foundation. Raises NotFound for a name of which there is none."""
    keeper = registry.keeper()
    if not refs:
        yield from (each for each in keeper.coverage() if before.file.digest in each.builds)
        return
    for ref in refs:
        exact = parse_reference(ref)[1] if "@" in ref else None
        name = registry.version(ref).adapter if exact else registry.versions(ref)[0].adapter
        some = [each for each in keeper.coverage(name) if exact in (None, each.version)]
        there = [each for each in some if before.file.digest in each.builds]
        if not there:
            raise NotFound(f"{ref} has no build on {before.file.digest}", hint="see `ptdock foundation coverage`")
        yield from there


def _steps(
    registry: Registry,
    before: Foundation,
    after: Foundation,
    wanted: Sequence[Coverage],
    options: PublishOptions,
    progress: Progress,
) -> Iterator[Step]:
    linker: Linker | None = None
    for number, each in enumerate(wanted, 1):
        step = _without_work(each, before, after)
        if step is None:
            progress(f"{number} of {len(wanted)}: {each.ref}")
            linker = linker or Linker(registry, after)
            step = built(linker, each, options)
        yield step


def _without_work(each: Coverage, before: Foundation, after: Foundation) -> Step | None:
    if each.builds.get(after.file.digest):
        return Step(each.ref, "unchanged")
    if each.yanked is not None:
        return Step(each.ref, "skipped", reason=f"yanked: {each.yanked}")
    if not each.builds[before.file.digest] or each.builds.get(after.file.digest) is False:
        return Step(each.ref, "skipped", reason="revoked")
    return None


def built(linker: Linker, each: Coverage, options: PublishOptions) -> Step:
    """Publish a version's stored source on the linker's foundation, under the version that it has.

    What the gate refuses, and what the store has lost, is told in the step.
    """
    registry = linker.registry
    try:
        with laid_out(registry, registry.version(each.ref)) as (directory, gate):
            here = PublishOptions(
                options.foundation,
                each.adapter,
                each.version,
                context=options.context,
                base=options.base,
                allow_pickle=gate.allow_pickle,
                adapter_name=gate.adapter_name,
                initial=gate.initial,
            )
            published = publish_with(linker, directory, here)
    except AdapterRefused as error:
        return Step(each.ref, "refused", reason=error.message, findings=tuple(error.values["findings"]))
    except (Conflict, IntegrityError, NotFound) as error:
        return Step(each.ref, "refused", reason=error.message)
    outcome: Outcome = "unchanged" if published.result.outcome == "unchanged" else "built"
    return Step(each.ref, outcome, published.build.file.digest)
