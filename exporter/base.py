"""A base model: a Hugging Face checkpoint directory, known by its tensors' digests and never by its name. Torch-free.

    >>> with read_base(Path("models/smollm2")) as base:  # doctest: +SKIP
    ...     fingerprint(base.tensors)

What is not such a directory is refused with the way to one: a hub id, a GGUF file, pickles, Meta's own layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from exporter.shards import Weights, open_weights, read_json
from registry import canonical
from registry.artifacts import Tensor
from registry.digest import Digest
from registry.errors import FormatError, InputError

# The small files that travel with a base: what a tokenizer or a chat needs, under transformers' names.
BASE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)

_HUB_ID = re.compile(r"(?:https?:/{1,2}(?:www\.)?huggingface\.co/)?([\w.-]+)/([\w.-]+)(?:/tree/[\w./-]+)?/?", re.ASCII)
_SAVE = "load it with transformers and save it: model.save_pretrained(DIR); tokenizer.save_pretrained(DIR)"
_META = (
    "Meta's layout orders the rows of q and k otherwise, and adapters trained on the Hugging Face layout would be "
    "silently wrong on it: take the Hugging Face checkpoint, or convert with transformers' "
    "convert_llama_weights_to_hf.py"
)
_GGUF = f"ptdock needs the unquantized safetensors; transformers also reads GGUF (gguf_file=…): {_SAVE}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read and hashed; a context manager that closes its weights.

    `tensors` is sorted by name; `files` are those of BASE_FILES that are there, by name.
    """

    directory: Path
    config: Mapping[str, Any]
    files: Mapping[str, Path]
    tensors: tuple[Tensor, ...] = field(repr=False)
    weights: Weights = field(repr=False)

    @property
    def hint(self) -> str:
        """The directory, absolute."""
        return str(self.directory.resolve())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.weights.close()


class BaseSource(Protocol):
    """What a base is recorded from: a checkpoint, or a factory's module (exporter.module_export)."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Sorted by name."""
        ...

    @property
    def files(self) -> Mapping[str, Path]:
        """Those of BASE_FILES that are there, by name."""
        ...

    @property
    def hint(self) -> str:
        """Where to find it again: a directory, or `package.module:factory`."""
        ...


def tensor_table(tensors: Iterable[Tensor]) -> bytes:
    """The canonical JSON of the sorted [[name, dtype, shape, digest], …], as the registry keeps it."""
    rows = sorted([tensor.name, tensor.dtype, list(tensor.shape), str(tensor.digest)] for tensor in tensors)
    return canonical.dumps(rows)


def fingerprint(tensors: Iterable[Tensor]) -> Digest:
    """A base's identity: the SHA-256 of its tensor table."""
    return Digest.of(tensor_table(tensors))


def _no_such_path(path: str) -> InputError:
    """A path that is not there: perhaps meant as a hub id."""
    match = _HUB_ID.fullmatch(path)
    if match is None or match[1] in {".", "..", "~"}:
        return InputError(f"{path}: no such directory", hint="give the directory of a Hugging Face checkpoint")
    return InputError(
        f"{path}: no such directory; ptdock reads checkpoints from disk, not from the hub",
        hint=f"if it is a hub id, run: hf download {match[1]}/{match[2]} --local-dir {match[2]}",
    )


def _not_a_directory(path: Path) -> InputError:
    if path.suffix == ".gguf":
        return InputError(f"{path}: is a GGUF file", hint=_GGUF)
    hint = f"give its directory: {path.parent}" if (path.parent / "config.json").is_file() else _SAVE
    return InputError(f"{path}: is a file, a checkpoint is a directory with config.json and safetensors", hint=hint)


def _other_format(directory: Path) -> InputError | None:
    """What a directory holds in place of safetensors in the Hugging Face layout, if it is a kind that we know."""
    names = sorted(entry.name for entry in directory.iterdir())

    def first(pattern: str) -> str | None:
        return next((name for name in names if re.fullmatch(pattern, name)), None)

    if name := first(r"consolidated.*\.(pth|safetensors)"):
        return InputError(f"{directory}: holds weights in Meta's layout ({name})", hint=_META)
    if name := first(r".*\.gguf"):
        return InputError(f"{directory}: holds GGUF ({name}), not safetensors", hint=_GGUF)
    if name := first(r"model-\d+-of-\d+\.safetensors"):
        return InputError(
            f"{directory}: holds shards ({name}) without model.safetensors.index.json", hint="complete the download"
        )
    if name := first(r".*\.(bin|pt|pth|ckpt)"):
        return InputError(
            f"{directory}: holds only pickles ({name}), which can run code when they are read",
            hint=f"convert where you trust the file: {_SAVE}",
        )
    if name := first(r".*\.safetensors"):
        return InputError(f"{directory}: holds {name}, expected model.safetensors", hint=_SAVE)
    return None


def _no_config(directory: Path) -> InputError:
    if (directory / "adapter_config.json").is_file():
        return InputError(
            f"{directory}: is an adapter, not a base", hint="give the directory of the model it was trained on"
        )
    inner = sorted(
        str(path.parent) for pattern in ("*", "snapshots/*") for path in directory.glob(f"{pattern}/config.json")
    )
    if inner:
        return InputError(
            f"{directory}: has no config.json, but directories in it have", hint=f"give {' or '.join(inner[:5])}"
        )
    whole = any((directory / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))
    lost = InputError(f"{directory}: has weights, but no config.json", hint="complete the download") if whole else None
    return (
        lost
        or _other_format(directory)
        or InputError(f"{directory}: has no config.json", hint="give the directory of a Hugging Face checkpoint")
    )


def open_base(directory: Path | str) -> tuple[Mapping[str, Any], Weights]:
    """The config and the open weights of a checkpoint directory, nothing hashed; close the weights after use.

    Raises InputError for what is no Hugging Face checkpoint, with the way to one; FormatError for a damaged one.
    """
    path = Path(directory)
    try:
        if path.exists():
            return _open(path)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    raise _no_such_path(str(directory))


def _open(path: Path) -> tuple[Mapping[str, Any], Weights]:
    if not path.is_dir():
        raise _not_a_directory(path)
    if not (path / "config.json").is_file():
        raise _no_config(path)
    config = read_json(path / "config.json")
    if not isinstance(config, dict):
        raise FormatError(f"{path / 'config.json'}: is not a JSON object")
    weights = open_weights(path)
    if weights is None:
        raise _other_format(path) or InputError(f"{path}: holds no model.safetensors", hint="complete the download")
    return config, weights


def read_base(directory: Path | str, *, progress: Callable[[int], None] | None = None) -> Checkpoint:
    """Read a checkpoint directory and hash every tensor; `progress` gets the length in bytes of each piece hashed.

    Raises as `open_base` does. No tensor is held in memory.
    """
    path = Path(directory)
    config, weights = open_base(directory)
    try:
        tensors = tuple(weights.tensors(progress))
    except BaseException:
        weights.close()
        raise
    files = {name: path / name for name in BASE_FILES if (path / name).is_file()}
    return Checkpoint(path, config, files, tensors, weights)
