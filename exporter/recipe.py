"""What decides a foundation's bytes, as canonical JSON. Pure.

The context length is not here on purpose: rotary angles are computed in the graph from `inv_freq`, so one
foundation serves every context and ExecuTorch version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from registry.errors import InputError

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
class Recipe:
    """`dtype` is the weights' (F32 or F16); `libraries` the versions of what writes the bytes."""

    dtype: str = "F32"
    backend: str = "xnnpack"
    quantization: Mapping[str, Any] | None = None
    graph: int = GRAPH
    libraries: Mapping[str, str] = field(default_factory=installed_versions)

    def to_json(self) -> dict[str, Any]:
        """The document that is hashed and stored."""
        return {"schema": 1, **asdict(self)}

    @classmethod
    def like(cls, document: Mapping[str, Any]) -> Recipe:
        """The recipe of a recorded foundation, with the libraries and the graph of this installation."""
        return cls(document["dtype"], document["backend"], document["quantization"])

    @property
    def factor_dtype(self) -> str:
        """What LoRA factors are stored as: fp32 beside quantized weights, else the weights' own dtype."""
        return "F32" if self.quantization else self.dtype


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
