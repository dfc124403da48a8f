"""A program on its foundation in ExecuTorch's runtime, for comparing. Imports torch and executorch.

Loaded(program, foundation).run([pixels])            # the tensors that any program answers
Session(program, foundation).forced([1, 9, 33])      # (3, vocabulary): the logits after each token
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401 - the imports register the operators
import torch
from executorch.runtime import Runtime

from registry.errors import IntegrityError


def without_kernel(operators: Iterable[str]) -> list[str]:
    """Those of ATen's operators that ExecuTorch's own runtime cannot run; an app may bring others of its own."""
    known = set(Runtime.get().operator_registry.operator_names)
    return sorted(name for name in operators if name.startswith("aten::") and name not in known)


class Loaded:
    """A loaded program."""

    def __init__(self, program: Path, foundation: Path) -> None:
        """Load both. Raises IntegrityError where the runtime refuses them."""
        try:
            self._program = Runtime.get().load_program(str(program), data_path=str(foundation))
            self._forward = self._program.load_method("forward")
        except RuntimeError as error:
            raise IntegrityError(
                f"ExecuTorch cannot load {program.name} on {foundation.name}: {error}",
                hint="`ptdock verify` says whether one of them is damaged",
            ) from error

    def run(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors that it answers. Raises RuntimeError where the runtime cannot run it on these inputs."""
        answered = self._forward.execute(list(inputs))
        return [each.clone() for each in answered if isinstance(each, torch.Tensor)]  # the next run writes over them


class Session(Loaded):
    """A loaded text program; whatever is fed starts from an empty context."""

    def forced(self, tokens: Sequence[int]) -> torch.Tensor:
        """(tokens, vocabulary) fp32: the logits after each token, fed one by one as in decoding."""
        return torch.cat([self._run([token], position) for position, token in enumerate(tokens)])

    def prefilled(self, tokens: Sequence[int]) -> torch.Tensor:
        """(1, vocabulary) fp32: the logits after the last of these tokens, fed at once."""
        return self._run(tokens, 0)

    def _run(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        inputs = (torch.tensor([list(tokens)], dtype=torch.int64), torch.tensor([position], dtype=torch.int64))
        logits = self.run(inputs)[0]
        return logits.reshape(-1, logits.shape[-1])[-1:].float()
