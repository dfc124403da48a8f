"""What decides a foundation's bytes, as canonical JSON. Pure.

The context length is not here on purpose: rotary angles are computed in the graph from `inv_freq`, so one
foundation serves every context and ExecuTorch version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from exporter.reading import Document
from registry.errors import FormatError, InputError

GRAPH = 1
"""Raised whenever the emitted graph changes, so that templates of two graphs are never mixed up."""

NO_SHARED_FOUNDATION = {
    "coreml": "Core ML compiles the weights into its own .mlmodelc inside the program",
    "qnn": "Qualcomm's compiler bakes the weights into its context binary",
    "openvino": "OpenVINO compiles the weights into its blob",
    "mediatek": "the Neuron compiler bakes the weights into its blob",
    "mlx": "MLX prefixes every key with its program, so two programs never ask for the same tensor",
    "vulkan": "the Vulkan delegate ignores the tag that moves weights out of the program",
    "aoti": "AOTInductor compiles the weights into its shared library",
}

GROUP_SIZES = (32, 64, 128)
DEFAULT_GROUP_SIZE = 32
EMBEDDING_BITS = (4, 8)


def installed_versions() -> dict[str, str]:
    """The versions of torch and executorch here; empty where the export extra is not installed."""
    found = {}
    for name in ("executorch", "torch", "torchao"):
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class Quantization:
    """8da4w: int8 activations per token, int4 weights in groups of `group_size` along a linear's inputs.

    `embedding_bits` is 4 or 8, in groups of the same size; None leaves embeddings as they are.
    """

    group_size: int = DEFAULT_GROUP_SIZE
    embedding_bits: int | None = None
    mode: str = "8da4w"

    @classmethod
    def from_json(cls, entry: Document) -> Quantization:
        """Read a recipe's member `quantization`. Raises FormatError."""
        entry.choice("mode", ("8da4w",))
        found = cls(entry.count("group_size"), entry.optional_count("embedding_bits"))
        if found.group_size not in GROUP_SIZES or found.embedding_bits not in (None, *EMBEDDING_BITS):
            raise FormatError(
                f"{entry.where}: groups of {found.group_size} and embeddings of {found.embedding_bits} bits",
                hint="group_size is 32, 64 or 128, embedding_bits 4, 8 or null",
            )
        return found


@dataclass(frozen=True, slots=True)
class Recipe:
    """`dtype` is the weights' (F32 or F16); `libraries` the versions of what writes the bytes.

    `module` is the factory of a module that is no decoder of ours (exporter.module_export); `graph` is then its own.
    """

    dtype: str = "F32"
    backend: str = "xnnpack"
    quantization: Mapping[str, Any] | None = None
    graph: int = GRAPH
    libraries: Mapping[str, str] = field(default_factory=installed_versions)
    module: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The document that is hashed and stored; it has a member `module` only where there is one."""
        document = {"schema": 1, **asdict(self)}
        return document if self.module else {name: document[name] for name in document if name != "module"}

    @classmethod
    def like(cls, document: Mapping[str, Any]) -> Recipe:
        """The recipe of a recorded foundation, with this installation's libraries and, for a decoder, its graph."""
        module = document.get("module")
        graph = document["graph"] if module else GRAPH
        return cls(document["dtype"], document["backend"], document["quantization"], graph, module=module)

    @classmethod
    def from_json(cls, document: Any) -> Recipe:
        """Read a recipe that someone kept, alone or inside what `foundation show --json` prints.

        Libraries and graph are this installation's. Raises FormatError, or InputError for what cannot be exported.
        """
        top = Document(document, "recipe")
        recipe = top.part("recipe") if top.has("recipe") else top
        recipe.schema(1)
        check_backend(recipe.text("backend"))
        entry = recipe.optional_object("quantization")
        quantization = Quantization.from_json(entry) if entry else None
        made = recipe_of(recipe.choice("dtype", ("F32", "F16")), quantization)
        return replace(made, module=recipe.optional_text("module"))

    @property
    def quantized(self) -> Quantization | None:
        """How weights are quantized; None where they are plain."""
        return Quantization(**self.quantization) if self.quantization else None

    @property
    def factor_dtype(self) -> str:
        """What LoRA factors are stored as: fp32 beside quantized weights, else the weights' own dtype."""
        return "F32" if self.quantization else self.dtype


def recipe_of(dtype: str, quantization: Quantization | None) -> Recipe:
    """The recipe of these choices (dtype F32 or F16). Raises InputError for fp16 beside quantized weights."""
    if quantization and dtype != "F32":
        raise InputError(
            "a quantized foundation computes in fp32, so its norms and factors are fp32 too",
            hint=f"leave --dtype out: --qmode {quantization.mode} decides how weights are stored",
            dtype=dtype,
        )
    return Recipe(dtype, quantization=asdict(quantization) if quantization else None)


def check_quantization(mode: str | None, group_size: int | None, embedding_bits: int | None) -> Quantization | None:
    """What --qmode, --group-size and --embedding-bits ask for; None without a mode. Raises InputError."""
    if mode is None:
        for option, value in (("--group-size", group_size), ("--embedding-bits", embedding_bits)):
            if value is not None:
                raise InputError(f"{option} without --qmode quantizes nothing", hint=f"--qmode 8da4w {option} {value}")
        return None
    if mode != "8da4w":
        raise InputError(
            f"weights cannot be quantized as {mode!r}",
            hint="use --qmode 8da4w: XNNPACK's int4 weights in groups, int8 activations",
            qmode=mode,
        )
    size = DEFAULT_GROUP_SIZE if group_size is None else group_size
    return Quantization(
        _one_of("--group-size", size, GROUP_SIZES),
        None if embedding_bits is None else _one_of("--embedding-bits", embedding_bits, EMBEDDING_BITS),
    )


def _one_of(option: str, value: int, allowed: tuple[int, ...]) -> int:
    if value not in allowed:
        sizes = " or ".join(map(str, allowed))
        raise InputError(f"{option} cannot be {value}", hint=f"{option} {sizes}", expected=allowed, actual=value)
    return value


def check_backend(name: str) -> str:
    """Return `xnnpack`, or refuse a backend that cannot share a foundation, with its reason. Raises InputError."""
    if name == "xnnpack":
        return name
    reason = NO_SHARED_FOUNDATION.get(name)
    raise InputError(
        f"no shared foundation on {name}" if reason else f"unknown backend {name!r}",
        hint=f"{reason}; use --backend xnnpack" if reason else "use --backend xnnpack",
        backend=name,
    )


def check_dtype(name: str) -> str:
    """The safetensors spelling of --dtype fp32 or fp16. Raises InputError; bf16 is refused with its reason."""
    spellings = {"fp32": "F32", "fp16": "F16"}
    if name in spellings:
        return spellings[name]
    reason = "XNNPACK delegates no bf16 linear; export a bf16 checkpoint as fp32 or fp16" if name == "bf16" else ""
    raise InputError(f"weights cannot be stored as {name!r}", hint=reason or "use fp32 or fp16", dtype=name)
