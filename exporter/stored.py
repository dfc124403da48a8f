"""A version's stored source as the directory that it was published from, to be read through the gate again.

    with laid_out(registry, registry.version("pirate@1.0.0")) as (directory, gate):
        checked = linker.check(directory, gate)

The files are hard links into the store where that is possible. How the gate has to read them follows from the source:
a pickle was allowed then, an initial adapter stands behind `initial/`, one of several adapters is named in the lineage.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter.linker import Gate, Linked, Linker
from exporter.peft.adapter import INITIAL
from exporter.peft.directory import PICKLE
from exporter.peft.findings import Finding
from exporter.peft.gate import Checked
from registry.artifacts import Build, Version
from registry.digest import Descriptor, Digest
from registry.errors import DAMAGE, IntegrityError
from registry.service import Registry


@contextmanager
def laid_out(registry: Registry, version: Version) -> Iterator[tuple[Path, Gate]]:
    """The source of a version in a directory, and how to read it; it is gone when the block ends.

    Raises NotFound for a file that the store has lost, IntegrityError for a name that is none.
    """
    source = registry.source(version)
    named = version.lineage.get("adapter_name")
    with tempfile.TemporaryDirectory(dir=registry.home, prefix="work-") as work:
        trained, initial = Path(work) / "trained", Path(work) / "initial"
        for directory in (trained, initial):
            directory.mkdir()
        for name, file in (*source.files.items(), *source.attachments.items()):
            directory = initial if name.startswith(INITIAL) else trained
            _lay(registry, file, directory, name.removeprefix(INITIAL))
        yield (
            trained,
            Gate(
                allow_pickle=PICKLE in source.files,
                adapter_name=named if isinstance(named, str) else None,
                initial=initial if any(initial.iterdir()) else None,
            ),
        )


def _lay(registry: Registry, file: Descriptor, directory: Path, name: str) -> None:
    if not name or Path(name).name != name:
        raise IntegrityError(f"{name!r} is no name of a file", hint="`ptdock verify` looks at all rows")
    blob = registry.blobs.path(file.digest)
    try:
        os.link(blob, directory / name)
    except OSError:  # another file system, or one without links
        shutil.copyfile(blob, directory / name)


def rebuild(registry: Registry, linker: Linker, build: Build) -> tuple[Checked, Linked]:
    """Check, fold and relink a build's source once more. `linker` is of the build's foundation.

    Raises AdapterRefused when today's gate refuses what was published, IntegrityError when the source is of another
    structure now, NotFound for what the store has lost.
    """
    template = registry.template_of(build)
    version = registry.version(f"{build.adapter}@{build.version}")
    with laid_out(registry, version) as (directory, gate):
        checked = linker.check(directory, gate)
        adapter = checked.accept()
        folded = linker.fold(adapter)
        if folded.structure.digest != template.structure_digest:
            raise IntegrityError(
                f"{build.adapter}@{build.version}: its source is {folded.structure.describe()} now",
                hint="please report this: the same files must always give the same structure",
                expected=str(template.structure_digest),
                actual=str(folded.structure.digest),
            )
        return checked, linker.link(template, adapter, folded)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a build compares with what is recorded of it: `faults` in words, what was `rebuilt` by role, if it was."""

    build: Build
    faults: tuple[str, ...]
    rebuilt: Mapping[str, Digest] | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether everything is as recorded."""
        return not self.faults


def compare(registry: Registry, build: Build, *, rebuild_too: bool) -> Comparison:
    """Hash a build's files and its version's source, follow its links, and with `rebuild_too` make it again.

    Damage is a fault, not an error, and so is what the gate refuses today. Raises NotFound and IntegrityError for what
    the foundation has lost.
    """
    linker = Linker(registry, registry.foundation(build.foundation))
    faults = [*_damaged(registry, build)]
    if not faults:
        with _noted(faults):
            linker.check_program(registry.blobs.read(build.file.digest))
    if not faults and rebuild_too:
        with _noted(faults):
            checked, linked = rebuild(registry, linker, build)
            made = {role: Digest.of(data) for role, data in _roles(linked).items()}
            faults += _differences(made, build)
            return Comparison(build, tuple(faults), made, checked.findings)
    return Comparison(build, tuple(faults))


def _differences(made: Mapping[str, Digest], build: Build) -> Iterator[str]:
    """Where what was made again is not what is recorded; a self-test is not made here."""
    recorded = {role: file.digest for role, file in _recorded(build).items() if role != "self_test"}
    for role in sorted(made.keys() | recorded.keys()):
        if made.get(role) != recorded.get(role):
            yield f"the {role} is recorded as {recorded.get(role)}, made again it is {made.get(role)}"


def _roles(linked: Linked) -> dict[str, bytes]:
    return {"program": linked.program, "factors": linked.factors, **linked.parts}


def _recorded(build: Build) -> dict[str, Descriptor]:
    return {"program": build.file, "factors": build.factors, **build.parts}


def _damaged(registry: Registry, build: Build) -> Iterator[str]:
    """What is wrong with the files of a build and of its source, in words."""
    source = registry.source(registry.version(f"{build.adapter}@{build.version}"))
    wanted = {**_recorded(build), **source.files, **source.attachments}
    for name, file in wanted.items():
        faults: list[str] = []
        with _noted(faults):
            actual = Digest.of_file(registry.blobs.path(file.digest))
            if actual != file.digest:
                faults.append(f"its bytes have the digest {actual}, not {file.digest}")
        yield from (f"{name}: {fault}" for fault in faults)


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        faults.append(error.message)
