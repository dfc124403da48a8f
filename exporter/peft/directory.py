"""An adapter's directory: which files are the adapter, which travel along, and which stay behind.

The source is adapter_config.json with its weights: one safetensors file, or all shards of an index. Optimizer states,
pickles and sub-directories are left out and named. Symbolic links are not followed and no name leaves the directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from exporter.peft.fields import FILE as CONFIG
from exporter.peft.findings import Findings
from exporter.peft.tensors import MAX_HEADER, Stored, read_tensors
from registry import canonical
from registry.digest import Descriptor, Digest
from registry.errors import FormatError, InputError

WEIGHTS = "adapter_model.safetensors"
INDEX = "adapter_model.safetensors.index.json"
PICKLE = "adapter_model.bin"
MAX_CONFIG = 4 << 20
MAX_NAME = 255
MAX_TENSOR_NAME = 512
MAX_TENSORS = 1 << 17
MAX_ATTACHMENT = 64 << 20
MAX_MESSAGE = 1000  # what a file says of itself, such as a name, may be megabytes
STRAY_HINT = "give the directory that PEFT saved"
DAMAGED_HINT = "the adapter is damaged or not whole: fetch it again"
_SHARD = re.compile(r"adapter_model-\d{5}-of-\d{5}\.safetensors", re.ASCII)
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt)", re.ASCII)
_LEFT_OUT = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|training_args|pytorch_model|random_states).*|.*\.(safetensors|bin|pt|pth|pkl|ckpt|npz|gguf)",
    re.ASCII,
)


@dataclass(frozen=True)
class Directory:
    """What stands in the directory: the config's bytes, the tensors by name, and the files by what they are.

    `config` and `tensors` are None where they could not be read, and findings say why. `names` are the source's files.
    """

    path: Path
    config: bytes | None
    tensors: Mapping[str, Stored] | None = field(repr=False)
    names: tuple[str, ...] = ()
    attachments: Mapping[str, Descriptor] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    known: Mapping[str, Descriptor] = field(default_factory=dict, repr=False)

    @cached_property
    def source(self) -> Mapping[str, Descriptor]:
        """The source's files by name; each that is not known is hashed now, whatever its size."""
        return {name: self.known.get(name) or _describe(self.path / name) for name in self.names}


def read_directory(
    path: Path, findings: Findings, known: Mapping[str, Descriptor] | None = None, *, allow_pickle: bool = False
) -> Directory:
    """Read an adapter's directory; what cannot be read becomes a finding. Raises InputError for no directory.

    Files that are `known` by name are not hashed again, and weights not before somebody asks for their digest.
    """
    if not path.is_dir():
        made = "save_pretrained(DIR) of PEFT makes one, and so does: hf download REPO --local-dir DIR"
        hint = f"give its directory: {path.parent}" if path.is_file() else made
        raise InputError(f"{path}: not a directory", hint=hint)
    config = _read_config(path, findings)
    weights = _find_weights(path, findings, allow_pickle=allow_pickle)
    tensors = _read_weights(path, weights, findings)
    if config is None or tensors is None:
        return Directory(path, config, tensors)
    names = (CONFIG, *weights)
    told = known or {}
    attachments, left_out = _others(path, set(names), told)
    return Directory(path, config, tensors, names, attachments, left_out, told)


def _read_config(path: Path, findings: Findings) -> bytes | None:
    file = path / CONFIG
    if not file.exists() and not file.is_symlink():
        inner = sorted(entry.parent.name for entry in path.glob(f"*/{CONFIG}"))
        listed = f"its sub-directories have one: {', '.join(inner)}" if inner else ""
        message = f"{CONFIG} is missing" + (f"; {listed}" if inner else "")
        hint = f"check one of them, such as {path / inner[0]}" if inner else STRAY_HINT
        findings.error("no-config", CONFIG, message, actual=inner or None, hint=hint)
        return None
    if not _is_plain(path, CONFIG, findings):
        return None
    if file.stat().st_size > MAX_CONFIG:
        message = f"{CONFIG}: {file.stat().st_size} bytes, at most {MAX_CONFIG} are read"
        findings.error("config-format", CONFIG, message, hint=STRAY_HINT)
        return None
    return file.read_bytes()


def _is_plain(path: Path, name: str, findings: Findings) -> bool:
    """Whether `name` is a regular file of this directory, not a link and not a way out of it."""
    inside = Path(name).name == name and len(os.fsencode(name)) <= MAX_NAME
    file = path / name
    if inside and not file.is_symlink() and file.is_file():
        return True
    if not inside:
        code, message, hint = "outside", f"{name[:MAX_NAME]!r} is no name of a file in this directory", STRAY_HINT
    elif file.is_symlink():
        code, message, hint = "symlink", f"{name} is a symbolic link", "copy the files themselves: cp -L"
    elif file.exists():
        code, message, hint = "not-a-file", f"{name} is not a regular file", STRAY_HINT
    else:
        code, message, hint = "missing-file", f"{name} is missing", DAMAGED_HINT
    findings.error(code, name, message, hint=hint)
    return False


def _find_weights(path: Path, findings: Findings, *, allow_pickle: bool) -> tuple[str, ...]:
    """The names of the weights' files, in canonical order; empty when there are none that may be read."""
    shards = tuple(sorted(entry.name for entry in path.iterdir() if _SHARD.fullmatch(entry.name)))
    whole, index = _exists(path / WEIGHTS), _exists(path / INDEX)
    if whole and (index or shards):
        message = f"both {WEIGHTS} and {INDEX if index else shards[0]} are there: which are the weights?"
        findings.error("ambiguous-weights", WEIGHTS, message, hint="keep one of them")
        return ()
    if whole:
        return (WEIGHTS,) if _is_plain(path, WEIGHTS, findings) else ()
    if index:
        return (INDEX, *_indexed(path, findings))
    if shards:
        message = f"{len(shards)} shards, but {INDEX} is missing"
        findings.error("no-index", INDEX, message, hint=DAMAGED_HINT)
        return ()
    return _other_weights(path, findings, allow_pickle=allow_pickle)


def _exists(file: Path) -> bool:
    return file.exists() or file.is_symlink()


def _indexed(path: Path, findings: Findings) -> tuple[str, ...]:
    if not _is_plain(path, INDEX, findings):
        return ()
    table = _weight_map(path, findings)
    names = tuple(sorted(set(table.values())))
    return names if all([_is_plain(path, name, findings) for name in names]) else ()  # noqa: C419 - name all of them


def _weight_map(path: Path, findings: Findings) -> dict[str, str]:
    size = (path / INDEX).stat().st_size
    if size > MAX_HEADER:
        message = f"{INDEX}: {size} bytes, at most {MAX_HEADER} are read"
        findings.error("index-format", INDEX, message, hint=STRAY_HINT)
        return {}
    try:
        document = canonical.loads((path / INDEX).read_bytes(), what=INDEX)
    except FormatError as error:
        findings.error("index-format", INDEX, error.message, hint=error.hint or DAMAGED_HINT)
        return {}
    table: Any = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(table, dict) or not table or not all(_is_safetensors(name) for name in table.values()):
        message = f"{INDEX}: 'weight_map' must name a safetensors file for each tensor"
        findings.error("index-format", INDEX, message, hint=DAMAGED_HINT)
        return {}
    return table


def _is_safetensors(name: object) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors")


def _other_weights(path: Path, findings: Findings, *, allow_pickle: bool) -> tuple[str, ...]:
    if _exists(path / "adapters.safetensors"):
        # MLX-LM's name. Its tensors are read, so that the refusal can say what they are.
        return ("adapters.safetensors",) if _is_plain(path, "adapters.safetensors", findings) else ()
    if not _exists(path / PICKLE):
        others = sorted(entry.name for entry in path.iterdir() if _WEIGHTS.fullmatch(entry.name))
        message = f"{WEIGHTS} is missing" + (f"; {', '.join(others)} is not what PEFT saves" if others else "")
        findings.error("no-weights", WEIGHTS, message, actual=others or None, hint=STRAY_HINT)
        return ()
    if not allow_pickle:
        findings.error(
            "pickle",
            PICKLE,
            f"{PICKLE} is a pickle, which can run code when it is read",
            hint="save as safetensors, or read its weights only with --allow-pickle",
        )
        return ()
    return (PICKLE,) if _is_plain(path, PICKLE, findings) else ()


def _read_weights(path: Path, names: tuple[str, ...], findings: Findings) -> dict[str, Stored] | None:
    """All tensors of all files; None when one of them cannot be read, for half an adapter is none."""
    tensors: dict[str, Stored] = {}
    files = [name for name in names if name != INDEX]
    for name in files:
        try:
            found = _read_file(path / name)
        except (FormatError, InputError) as error:
            message = error.message.replace(str(path / name), name)[:MAX_MESSAGE]
            findings.error("weights-format", name, message, hint=error.hint or DAMAGED_HINT)
            return None
        for twice in sorted(tensors.keys() & found.keys()):
            findings.error("ambiguous-tensor", twice, f"{twice} stands in two shards", hint=DAMAGED_HINT)
        tensors |= found
    if files and INDEX in names:
        _compare_index(_weight_map(path, Findings()), tensors, findings)
    return tensors if files and _are_names(tensors, findings) else None


def _are_names(tensors: Mapping[str, Stored], findings: Findings) -> bool:
    """Whether all tensors have names of a length that names have: what matches them takes quadratic time."""
    longest = max(tensors, key=len, default="")
    if len(longest) > MAX_TENSOR_NAME or len(tensors) > MAX_TENSORS:
        found = f"{len(tensors)} tensors, the longest name has {len(longest)} characters"
        message = f"{found}: at most {MAX_TENSORS} and {MAX_TENSOR_NAME} are read"
        findings.error("tensor-names", longest[:MAX_NAME], message, hint=STRAY_HINT)
        return False
    return True


def _read_file(file: Path) -> dict[str, Stored]:
    if file.name == PICKLE:
        from exporter.peft.pickled import read_pickle  # noqa: PLC0415 - the only way to torch, on request only

        return read_pickle(file)
    return read_tensors(file)


def _compare_index(table: Mapping[str, str], tensors: Mapping[str, Stored], findings: Findings) -> None:
    for name in sorted(table.keys() - tensors.keys()):
        findings.error("missing-tensor", name, f"{name} is missing from {table[name]}", hint=DAMAGED_HINT)
    for name in sorted(tensors.keys() - table.keys()):
        message = f"{name} stands in a shard, but not in {INDEX}"
        findings.error("not-in-index", name, message, hint=DAMAGED_HINT)


def _others(
    path: Path, source: set[str], known: Mapping[str, Descriptor]
) -> tuple[dict[str, Descriptor], tuple[str, ...]]:
    """Attachments by name, and what is left out: among it what has no name that can be written down."""
    attachments, left_out = {}, []
    for entry in sorted(path.iterdir()):
        if entry.name in source:
            continue
        keep = entry.is_file() and not entry.is_symlink() and not _LEFT_OUT.fullmatch(entry.name)
        keep = keep and entry.name.isprintable()
        if keep and entry.stat().st_size <= MAX_ATTACHMENT:
            attachments[entry.name] = known.get(entry.name) or _describe(entry)
        else:
            shown = entry.name if entry.name.isprintable() else ascii(entry.name)
            left_out.append(shown + "/" * entry.is_dir())
    return attachments, tuple(left_out)


def _describe(file: Path) -> Descriptor:
    return Descriptor(Digest.of_file(file), file.stat().st_size)
