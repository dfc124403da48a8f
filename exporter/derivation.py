"""How each tensor of a foundation derives from its base, read off the recorded tables. Torch-free.

    derive = Derivations.of(registry, foundation)
    derive(foundation.tensors[0])          # Derivation("copy", "model.norm.weight")

An export records under each key the base's names for those very bytes: exporter.lower finds them by hashing what the
module holds, and registry.links checks the file against the keys. A decoder holds the checkpoint's tensors under their
own names, as they are: where a family adds one to a norm's weight (Gemma) or splits the rows of a fused projection
(Phi-3), that stands in the graph of every program. So names, dtypes and shapes of both tables say it all:

    copy       the base's bytes
    cast       the base's values in another dtype: bf16 widened, fp32 or bf16 rounded to nearest even
    packed     made of the base's values by PyTorch: quantized, or in another order of dimensions
    constant   of the graph, made of config.json alone: rope frequencies, a norm's row of 1/width
    unknown    anything else: without a name, or at once a constant and a tensor of the base that happen to be equal
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from registry import canonical
from registry.artifacts import Base, ExternalTensor, Foundation
from registry.service import Registry

How = Literal["copy", "cast", "packed", "constant", "unknown"]

_CAST = {"F32", "F16", "BF16", "F64"}


@dataclass(frozen=True, slots=True)
class Derivation:
    """How, and of which tensor of the base: the first of those that are equal, None where there is none."""

    how: How
    source: str | None = None


def base_tensors(registry: Registry, base: Base) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of a recorded base's tensors by name. Raises NotFound for a table that the store has lost."""
    table = canonical.loads(registry.blobs.read(base.tensors.digest), what="tensor table")
    return {name: (dtype, tuple(shape)) for name, dtype, shape, _ in table}


@dataclass(frozen=True, slots=True)
class Derivations:
    """What the tables say: `base` has dtype and shape by name, `tied` the groups of modules that share a weight."""

    base: Mapping[str, tuple[str, tuple[int, ...]]]
    tied: Sequence[Sequence[str]] = ()

    @classmethod
    def of(cls, registry: Registry, foundation: Foundation) -> Derivations:
        """Of a recorded foundation. Raises NotFound and IntegrityError for tables that the store has lost."""
        modules = canonical.loads(registry.blobs.read(foundation.modules.digest), what="module table")
        return cls(base_tensors(registry, registry.base(foundation.base)), modules["tied"])

    def __call__(self, tensor: ExternalTensor) -> Derivation:
        """How a tensor of the foundation derives."""
        sources = [name for name in tensor.names if name in self.base]
        packed = [name for name in tensor.names if name.removesuffix("_scale") in self.base]
        if sources and set(tensor.names) <= {*sources, *self._twins(sources)}:
            return Derivation(self._how(tensor, sources[0]), sources[0])
        if packed and not sources and len(packed) == len(tensor.names):
            return Derivation("packed", packed[0].removesuffix("_scale"))
        return Derivation("unknown" if sources or not tensor.names else "constant")

    def _how(self, tensor: ExternalTensor, source: str) -> How:
        dtype, shape = self.base[source]
        if (dtype, shape) == (tensor.dtype, tensor.shape):
            return "copy"
        return "cast" if shape == tensor.shape and {dtype, tensor.dtype} <= _CAST else "packed"

    def _twins(self, sources: Sequence[str]) -> set[str]:
        """The weights that are one with these, under names that the base need not have: a tied head's."""
        groups = ([f"{module}.weight" for module in group] for group in self.tied)
        return {name for group in groups if not set(group).isdisjoint(sources) for name in group}
