"""The yardstick: ExecuTorch's own `export_llm`, exporting SmolLM2 with one adapter and a foundation file.

    python -m benchmarks.upstream

takes seven minutes and 3 GB of memory for each adapter, so it runs only on request. It writes its figures to
`build/bench/upstream.json`, from where `benchmarks.table` takes them. The model is converted to ExecuTorch's
names before the clock starts, and everything is asked for as ptdock exports it: fp32, KV cache, custom SDPA, XNNPACK,
the same context length. Hugging Face's rotary order is asked for too, or upstream's answers would be wrong for
adapters trained with PEFT.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.measure import run

BUILD = Path("build")
WORK = BUILD / "bench" / "upstream"
CONTEXT = 512
NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def meta_name(name: str) -> str:
    """ExecuTorch's name of a tensor: `model.layers.3.mlp.up_proj.weight` is `layers.3.feed_forward.w3.weight`."""
    name = name.removeprefix("model.").replace("embed_tokens", "tok_embeddings").replace("lm_head", "output")
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


def convert(base: Path, adapter: Path) -> Path:
    """Write checkpoint, parameters and configuration as `export_llm` reads them; answers the configuration's path."""
    WORK.mkdir(parents=True, exist_ok=True)
    tensors = {meta_name(name): value.float() for name, value in load_file(base / "model.safetensors").items()}
    tensors.setdefault("output.weight", tensors["tok_embeddings.weight"])
    torch.save(tensors, WORK / "checkpoint.pth")
    model = json.loads((base / "config.json").read_text())
    (WORK / "params.json").write_text(json.dumps(parameters(model)))
    path = WORK / "config.yaml"
    path.write_text(json.dumps(configuration(adapter, model), indent=2))
    return path


def parameters(config: dict[str, Any]) -> dict[str, Any]:
    """ExecuTorch's ModelArgs for a llama checkpoint's config.json."""
    return {
        "dim": config["hidden_size"],
        "hidden_dim": config["intermediate_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "vocab_size": config["vocab_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "use_scaled_rope": False,
        "use_hf_rope": True,
    }


def configuration(adapter: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The LlmConfig of one export. JSON is YAML, so this file needs no YAML writer."""
    special = {"get_bos_id": model["bos_token_id"], "get_eos_ids": [model["eos_token_id"]]}
    return {
        "base": {
            "model_class": "smollm2",
            "checkpoint": str(WORK / "checkpoint.pth"),
            "params": str(WORK / "params.json"),
            "metadata": json.dumps(special),
            "lora_config": {
                "adapter_checkpoint": str(adapter / "adapter_model.safetensors"),
                "adapter_config": str(adapter / "adapter_config.json"),
            },
        },
        "model": {"dtype_override": "fp32", "use_kv_cache": True, "use_sdpa_with_kv_cache": True},
        "export": {
            "max_seq_length": CONTEXT,
            "max_context_length": CONTEXT,
            "output_dir": str(WORK),
            "output_name": adapter.name,  # with .pte it would be written elsewhere
            "foundation_weights_file": "foundation",
        },
        "backend": {"xnnpack": {"enabled": True, "extended_ops": True}},
    }


def main() -> None:
    adapter = BUILD / "adapters" / "pirate"
    config = convert(BUILD / "smollm2", adapter)
    module = "executorch.extension.llm.export.export_llm"
    command = [sys.executable, "-m", module, "--config", str(config), f"hydra.run.dir={WORK}"]
    print(" ".join(command), flush=True)
    cost = run(command, log=WORK / "log.txt")
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "adapter": adapter.name,
        "load_average": os.getloadavg()[2],
        **cost.to_json(),
        "pte_bytes": (WORK / f"{adapter.name}.pte").stat().st_size,
        "ptd_bytes": (WORK / "foundation.ptd").stat().st_size,
    }
    (BUILD / "bench" / "upstream.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
