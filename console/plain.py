"""Plain files for people and apps, outside of the store: a build's `.ptd`, `.pte` and tokenizer, or one document.

The bytes are copies, never links into the store, so whoever edits them damages nothing. Each file appears whole, by
rename, after its digest was compared; nothing is unpacked when one of them stands there with other content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from console import render
from registry import files
from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import Conflict, InputError, IntegrityError

if TYPE_CHECKING:
    from console.app import App
    from registry.artifacts import Build, Foundation, Template
    from registry.service import Registry

NOT_TOKENIZER = frozenset({"config.json", "generation_config.json"})


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file that was asked for; `written` is False when it stood there already, with these bytes."""

    path: Path
    file: Descriptor
    written: bool


def contents(registry: Registry, build: Build, foundation: str | None = None) -> dict[str, Descriptor]:
    """The files of a build by the names that apps use; `foundation` is the name that the `.ptd` gets.

    By default it is the foundation's first name.
    """
    found = registry.foundation(build.foundation)
    names = [name for name, digest in registry.foundation_names().items() if digest == build.foundation]
    stem = foundation if foundation in names else (sorted(names) or [found.file.digest.hex[:12]])[0]
    return {f"{stem}.ptd": found.file, f"{build.adapter}.pte": build.file, **_tokenizer(registry, found)}


def base_contents(registry: Registry, found: Foundation, program: Template, name: str) -> dict[str, Descriptor]:
    """The files of a foundation and its base program, both by the foundation's name.

    They are what ExecuTorch's own export gives with `export.foundation_weights_file` and `export.output_name` set to
    that name, as those of a build are with the adapter's name for the latter.
    """
    return {f"{name}.ptd": found.file, f"{name}.pte": program.hollow, **_tokenizer(registry, found)}


def _tokenizer(registry: Registry, found: Foundation) -> dict[str, Descriptor]:
    return {name: file for name, file in registry.base(found.base).files.items() if name not in NOT_TOKENIZER}


def unpack(
    registry: Registry,
    wanted: Mapping[str, Descriptor],
    directory: Path,
    *,
    force: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[PlainFile, ...]:
    """Write the files into `directory`, made when absent; `progress` gets the bytes of each piece copied.

    Raises Conflict when one stands there with other content, unless `force`; IntegrityError for a damaged blob.
    """
    standing = {name for name, file in wanted.items() if _holds(directory / _plain(name), file)}
    other = [name for name in wanted if name not in standing and (directory / name).exists()]
    if other and not force:
        raise Conflict(
            f"{directory} has other content in {', '.join(other)}",
            hint="give another directory, or overwrite with --force",
            files=other,
        )
    with files.translated(directory):
        files.make_directory(directory)
        for name in sorted(set(wanted) - standing):
            _copy(registry.blobs.path(wanted[name].digest), directory / name, wanted[name], progress)
        files.sync(directory)
    return tuple(PlainFile(directory / name, file, name not in standing) for name, file in wanted.items())


def put(
    app: App, registry: Registry, wanted: Mapping[str, Descriptor], directory: Path, *, force: bool
) -> list[dict[str, Any]]:
    """Write the files of --out, and answer them as JSON. Raises what `unpack` raises; what is recorded stays so."""
    with app.progress() as progress:
        progress.phase(f"writing into {directory}", sum(file.size for file in wanted.values()))
        done = unpack(registry, wanted, directory, force=force, progress=progress.bytes)
    return [{"file": str(each.path), **each.file.to_json(), "written": each.written} for each in done]


def written_text(listed: Iterable[Mapping[str, Any]]) -> str:
    """What `put` answered, as a table."""
    words = {True: "written", False: "was there already"}
    rows = [(each["file"], render.size(each["size"]), words[each["written"]]) for each in listed]
    return render.table(("file", "size", ""), rows, right={1})


def write(path: Path, data: bytes) -> None:
    """Write one small file, whole, over what stands there. Raises InputError when its directory does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such directory", hint="make it first")
    if path.is_dir():
        raise InputError(f"{path}: is a directory", hint="name a file")
    with files.translated(path), files.unfinished(path.parent) as (fresh, out):
        files.write(fresh, out, data)
        files.sync(fresh)
        files.rename(fresh, path)


def _plain(name: str) -> str:
    if PurePath(name).name != name:
        raise IntegrityError(f"the registry holds a file named {name!r}, which is a path", hint="run `ptdock verify`")
    return name


def _holds(path: Path, file: Descriptor) -> bool:
    return path.is_file() and path.stat().st_size == file.size and Digest.of_file(path) == file.digest


def _copy(source: Path, target: Path, file: Descriptor, progress: Callable[[int], None]) -> None:
    with files.unfinished(target.parent) as (fresh, out):
        with open(source, "rb") as blob:
            while chunk := blob.read(CHUNK):
                files.write(fresh, out, chunk)
                progress(len(chunk))
        actual = Digest.of_file(fresh)
        if actual != file.digest:
            raise IntegrityError(
                f"blob {file.digest} is damaged: its bytes have the digest {actual}",
                hint="`ptdock verify` names what depends on it",
                expected=str(file.digest),
                actual=str(actual),
            )
        files.sync(fresh)
        files.rename(fresh, target)
