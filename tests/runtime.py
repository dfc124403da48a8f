"""Runs exported files in ExecuTorch's own runtime, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401
import torch
from executorch.runtime import Runtime


class Session:
    """One loaded program with its own KV cache."""

    def __init__(self, program: bytes | Path, foundation: Path) -> None:
        source = program if isinstance(program, bytes) else str(program)
        self._program = Runtime.get().load_program(source, data_path=str(foundation))
        self._forward = self._program.load_method("forward")
        self.position = 0

    def feed(self, tokens: Sequence[int]) -> torch.Tensor:
        """The last token's logits, (vocabulary,), after these tokens."""
        inputs = [torch.tensor([list(tokens)]), torch.tensor([self.position])]
        self.position += len(tokens)
        return self._forward.execute(inputs)[0][0].float()


def prefill_and_decode(program: bytes | Path, foundation: Path, tokens: Sequence[int]) -> torch.Tensor:
    """Logits (4, vocabulary): after a prefill of all but three tokens, and after each of those three alone."""
    session = Session(program, foundation)
    return torch.stack([session.feed(tokens[:-3]), *(session.feed([token]) for token in tokens[-3:])])


def reference(model: torch.nn.Module, tokens: Sequence[int]) -> torch.Tensor:
    """The same four rows from a transformers or PEFT model in eager fp32."""
    with torch.no_grad():
        return model(torch.tensor([list(tokens)])).logits[0, -4:].float()
