"""A module of nothing but linear layers, as large as one likes, and PEFT adapters on it written without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from torch import Tensor, manual_seed, nn, no_grad, relu, tensor


def inputs(width: int) -> list[float]:
    """What every program of a tower is asked."""
    values: list[float] = np.linspace(-1, 1, width, dtype=np.float32).tolist()
    return values


class Tower(nn.Module):
    """`depth` square linear layers with relu, weights large enough to keep a signal alive."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        with no_grad():
            for layer in self.layers:
                layer.weight.mul_(1.7)

    def forward(self, values: Tensor) -> Tensor:
        for layer in self.layers:
            values = relu(layer(values))
        return values


SMALL, MIDDLING, LARGE = (32, 2), (512, 8), (1024, 32)
"""Width and depth: kilobytes, 8 MB and 134 MB of fp32."""


def small() -> Any:
    return _made(*SMALL)


def middling() -> Any:
    return _made(*MIDDLING)


def large() -> Any:
    return _made(*LARGE)


def _made(width: int, depth: int) -> Any:
    return Tower(width, depth).eval(), (tensor([inputs(width)]),)


def write_adapter(directory: Path, seed: int, size: tuple[int, int], rank: int = 4) -> Path:
    """A PEFT adapter on every layer of a tower of this size, with factors that change its answer."""
    width, depth = size
    random = np.random.default_rng(seed)
    tensors = {
        f"base_model.model.layers.{layer}.{part}.weight": random.normal(0, 0.05, size=shape).astype("f4")
        for layer in range(depth)
        for part, shape in (("lora_A", (rank, width)), ("lora_B", (width, rank)))
    }
    directory.mkdir(parents=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    layers = [f"layers.{layer}" for layer in range(depth)]
    adapter = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": layers}
    (directory / "adapter_config.json").write_text(json.dumps(adapter))
    return directory
