"""Random LoRA adapters for the tiny base, as PEFT saves them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.registry.files import safetensors_bytes

WIDTH = 32


def write_adapter(
    directory: Path, seed: int, *, rank: int = 4, layers: tuple[int, ...] = (0, 1), wide: bool = False, **config: object
) -> Path:
    """A rank-`rank` adapter on q_proj, saved in BF16, or in F32 when `wide`."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    header: dict[str, object] = {}
    data = b""
    for layer in layers:
        for part, shape in (("lora_A", (rank, WIDTH)), ("lora_B", (WIDTH, rank))):
            values = random.normal(size=shape).astype("<f4")
            piece = values.tobytes() if wide else (values.view("<u4") >> 16).astype("<u2").tobytes()
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight"
            spans = [len(data), len(data) + len(piece)]
            header[name] = {"dtype": "F32" if wide else "BF16", "shape": list(shape), "data_offsets": spans}
            data += piece
    (directory / "adapter_model.safetensors").write_bytes(safetensors_bytes(header, data))
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"], **config}
    if layers != (0, 1):
        settings["layers_to_transform"] = list(layers)
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory
