"""What `adapter check` costs: a 45 MB adapter of a model of a billion weights, beside hashing the same bytes.

    python -m benchmarks.gate

"Check" is what the command does between its start and its answer: files read and hashed, names, shapes, every value
looked at. "Check and fold" also makes the factors, as `adapter check` does when the store or the card lets it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from exporter.card import Card, Module
from exporter.checking import check_whole
from exporter.peft.gate import check
from registry.digest import Digest

LAYERS, HIDDEN, KEYS, INNER, RANK = 16, 2048, 512, 8192, 16
VOCABULARY = 128_256
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, KEYS),
    "self_attn.v_proj": (HIDDEN, KEYS),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (HIDDEN, INNER),
    "mlp.up_proj": (HIDDEN, INNER),
    "mlp.down_proj": (INNER, HIDDEN),
}
ROUNDS = 7


def main() -> None:
    card = _card()
    print(f"{'':<24}{'bytes':>12}{'wall':>10}{'CPU':>10}{'CPU ÷ SHA-256':>16}")
    with tempfile.TemporaryDirectory() as work:
        for kind in (np.float32, np.float16):
            directory = Path(work) / kind.__name__
            size = _write(directory, kind)
            data = (directory / "adapter_model.safetensors").read_bytes()
            rows = {
                "SHA-256": lambda data=data: hashlib.sha256(data).digest(),
                "check": lambda directory=directory: check(directory, card).accept(),
                "check and fold": lambda directory=directory: check_whole(check(directory, card), card),
            }
            costs = {label: _cost(call) for label, call in rows.items()}
            for label, (wall, cpu) in costs.items():
                ratio = cpu / costs["SHA-256"][1]
                name = f"{kind.__name__}: {label}"
                print(f"{name:<24}{size:>12,}{wall * 1e3:>7.0f} ms{cpu * 1e3:>7.0f} ms{ratio:>16.1f}")


def _cost(call: Callable[[], object]) -> tuple[float, float]:
    """The least wall and processor time of several runs, in seconds."""
    costs = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        costs.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*costs, strict=True)
    return min(walls), min(cpus)


def _card() -> Card:
    modules = {name: Module("linear", *SHAPES[part], bias=False) for name, part in _names()}
    modules["model.embed_tokens"] = Module("embedding", VOCABULARY, HIDDEN, bias=False)
    modules["lm_head"] = Module("linear", HIDDEN, VOCABULARY, bias=False)
    return Card("LlamaForCausalLM", "F32", modules, Digest.of(b"a base"))


def _names() -> list[tuple[str, str]]:
    return [(f"model.layers.{layer}.{part}", part) for layer in range(LAYERS) for part in SHAPES]


def _write(directory: Path, kind: type[np.floating]) -> int:
    """A random rank-16 adapter on every projection, as PEFT names it; the size of its weights' file."""
    directory.mkdir()
    random = np.random.default_rng(0)
    tensors = {}
    for name, part in _names():
        inputs, outputs = SHAPES[part]
        for factor, shape in (("A", (RANK, inputs)), ("B", (outputs, RANK))):
            values = random.normal(0, 0.02, shape).astype(kind)
            tensors[f"base_model.model.{name}.lora_{factor}.weight"] = values
    file = directory / "adapter_model.safetensors"
    save_file(tensors, file)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 32, "target_modules": "all-linear"}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return file.stat().st_size


if __name__ == "__main__":
    main()
