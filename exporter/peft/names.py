"""Tensor names: which module, which part of it, which adapter; and whose spelling it is when it is not PEFT's. Pure.

PEFT writes `base_model.model.<module>.lora_A.weight`; a raw state dict adds the adapter's name
(`lora_A.default.weight`), torch.compile `_orig_mod.`, DistributedDataParallel `module.`, FSDP
`_fsdp_wrapped_module.`, activation checkpointing `_checkpoint_wrapped_module.`. All of them mean the same tensor
(`get_peft_model_state_dict` in peft/utils/save_and_load.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Part(StrEnum):
    """What a tensor is to its module."""

    A = "lora_A.weight"
    B = "lora_B.weight"
    B_BIAS = "lora_B.bias"
    MAGNITUDE = "lora_magnitude_vector"
    EMBEDDING_A = "lora_embedding_A"
    EMBEDDING_B = "lora_embedding_B"
    ROWS = "token_adapter.trainable_tokens_delta"
    WEIGHT = "weight"
    BIAS = "bias"
    BASE_WEIGHT = "base_layer.weight"
    BASE_BIAS = "base_layer.bias"
    ORIGINAL_WEIGHT = "original_module.weight"
    ORIGINAL_BIAS = "original_module.bias"
    SAVED_BIAS = "modules_to_save.bias"
    VELORA = "lora_velora_embed"


@dataclass(frozen=True, slots=True)
class TensorName:
    """A tensor's name, understood: `adapter` is the infix (`default`), None where there is none."""

    raw: str
    module: str
    part: Part
    adapter: str | None = None


_ADAPTER = r"(?:\.(?P<adapter>(?!(?:weight|bias)$)[^.]+))?"
_FORMS: tuple[tuple[re.Pattern[str], Part], ...] = tuple(
    (re.compile(rf"(?P<module>.+)\.{suffix}", re.DOTALL), part)
    for suffix, part in (
        (rf"lora_A{_ADAPTER}\.weight", Part.A),
        (rf"lora_B{_ADAPTER}\.weight", Part.B),
        (rf"lora_B{_ADAPTER}\.bias", Part.B_BIAS),
        (rf"lora_magnitude_vector{_ADAPTER}(?:\.weight)?", Part.MAGNITUDE),
        (rf"lora_embedding_A{_ADAPTER}", Part.EMBEDDING_A),
        (rf"lora_embedding_B{_ADAPTER}", Part.EMBEDDING_B),
        (rf"lora_velora_embed{_ADAPTER}", Part.VELORA),  # VeLoRA's projection, read in the backward pass alone
        (rf"token_adapter\.trainable_tokens_delta{_ADAPTER}", Part.ROWS),
        (r"token_adapter\.base_layer\.weight", Part.BASE_WEIGHT),
        (r"token_adapter\.base_layer\.bias", Part.BASE_BIAS),
        (r"base_layer\.weight", Part.BASE_WEIGHT),
        (r"base_layer\.bias", Part.BASE_BIAS),
        (r"original_module\.weight", Part.ORIGINAL_WEIGHT),
        (r"original_module\.bias", Part.ORIGINAL_BIAS),
        (r"modules_to_save\.bias", Part.SAVED_BIAS),  # what `bias: all` makes PEFT write a second time
        (r"modules_to_save\.(?P<adapter>[^.]+)\.weight", Part.WEIGHT),
        (r"modules_to_save\.(?P<adapter>[^.]+)\.bias", Part.BIAS),
        (r"weight", Part.WEIGHT),
        (r"bias", Part.BIAS),
    )
)
_INNER = re.compile(r"(?P<outer>.+)\.(?P<kind>modules_to_save|original_module)\.(?P<inner>.+)\.(?P<what>weight|bias)")
_INNER_PARTS = {
    ("modules_to_save", "weight"): Part.WEIGHT,
    ("modules_to_save", "bias"): Part.SAVED_BIAS,
    ("original_module", "weight"): Part.ORIGINAL_WEIGHT,
    ("original_module", "bias"): Part.ORIGINAL_BIAS,
}
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Adapters of one structure are spelled alike, and a thousand of them may be read one after the other.
_NAMES, _ALIKE = 1 << 14, 8
_PREFIX = re.compile(r"^(?:base_model\.model\.|module\.)")


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another tool's spelling: what it is, and how to get an adapter that PEFT can read."""

    pattern: re.Pattern[str]
    code: str
    message: str
    hint: str


FOREIGN: tuple[Foreign, ...] = tuple(
    Foreign(re.compile(pattern), code, message, hint)
    for pattern, code, message, hint in (
        (
            r"\.dora_scale$",
            "lycoris-dora",
            "LyCORIS DoRA axis: 'dora_scale' scales the inputs, PEFT's magnitude the outputs",
            "train with PEFT's use_dora, or merge this adapter and extract a LoRA from the difference",
        ),
        (
            r"^(?:.*\.)?layers\.\d+\.(?:attn|mlp)\..*lora_[ab]\.weight$|lora_[ab]\.weight$|lora_magnitude$|^lora_params$",
            "torchtune",
            "a torchtune adapter: its own keys, and Meta's rotary order",
            "let torchtune's checkpointer write the PEFT format: adapter_model.safetensors with adapter_config.json",
        ),
        (
            r"\.lora_[ab]$",
            "mlx-lm",
            "an MLX-LM adapter: factors stand transposed, and 'scale' stands for alpha / r",
            "transpose both factors, name them lora_A.weight and lora_B.weight, set lora_alpha to scale times rank",
        ),
        (
            r"^lora_(?:unet|te\d?)_|\.lora_(?:up|down)\.weight$|\.alpha$",
            "kohya",
            "a kohya / diffusers adapter: lora_up and lora_down with an alpha tensor",
            "convert it to the PEFT format first",
        ),
        (r"\.hada_w[12]", "loha", "a LoHa adapter (Hadamard product)", "convert it with PEFT's save_as_lora"),
        (r"\.lokr_[wt]", "lokr", "a LoKr adapter (Kronecker product)", "convert it with PEFT's save_as_lora"),
        (r"\.lora_E|\.ranknum", "adalora", "an AdaLoRA adapter", "convert it with PEFT's save_as_lora"),
        (r"\.ia3_l", "ia3", "an IA3 adapter", "train a LoRA adapter"),
        (r"vera_(?:A|B|lambda)", "vera", "a VeRA adapter", "convert it with PEFT's save_as_lora"),
        (r"\.lora_diag", "kasa", "a KaSA adapter", "train a LoRA adapter"),
        (r"\.lora_arrow", "arrow", "an Arrow router", "publish its experts one by one"),
        (r"\.lora_monteclora", "monteclora", "a MonteCLoRA adapter", "train a LoRA adapter"),
        (r"internal_xlora", "x-lora", "an X-LoRA mixture", "publish its experts one by one"),
        (r"^prompt_embeddings$", "prompt-tuning", "a prompt-tuning adapter", "train a LoRA adapter"),
    )
)


@lru_cache(_ALIKE)
def foreign(names: tuple[str, ...]) -> tuple[Foreign, str] | None:
    """The first other tool that one of these names gives away, and that name; None when all could be PEFT's."""
    for tool in FOREIGN:
        for name in names:
            if tool.pattern.search(name):
                return tool, name
    return None


@lru_cache(_NAMES)
def parse_name(raw: str, modules: frozenset[str]) -> TensorName | None:
    """Understand a tensor's name; None when no part of a LoRA adapter is spelled so.

    `modules` are the foundation's: prefixes are taken off until one is met.
    """
    plain = _WRAPPERS.sub("", raw)
    inner = _inside_saved(raw, plain, modules)
    if inner is not None:
        return inner
    for pattern, part in _FORMS:
        match = pattern.fullmatch(plain)
        if match:
            module = _strip(match["module"], modules)
            return TensorName(raw, module, part, match.groupdict().get("adapter"))
    return None


def _inside_saved(raw: str, plain: str, modules: frozenset[str]) -> TensorName | None:
    """A module inside a saved block: `mlp.modules_to_save.default.down_proj.bias` is `mlp.down_proj.bias`."""
    match = _INNER.fullmatch(plain)
    if match is None:
        return None
    words = match["inner"].split(".")
    for adapter, path in ((words[0], words[1:]), (None, words)):
        module = _strip(".".join([match["outer"], *path]), modules)
        if path and module in modules:
            return TensorName(raw, module, _INNER_PARTS[match["kind"], match["what"]], adapter)
    return None


def _strip(module: str, modules: frozenset[str]) -> str:
    stripped = module
    while stripped not in modules:
        shorter = _PREFIX.sub("", stripped, count=1)
        if shorter == stripped:
            break
        stripped = shorter
    return stripped


def nearest(module: str, known: Collection[str]) -> str | None:
    """The base module whose name is closest, compared from the end: `…layers.0.self_attn.q_proj`."""
    tail = module.split(".")
    for length in range(len(tail), 0, -1):
        ending = ".".join(tail[-length:])
        for name in known:
            if name == ending or name.endswith(f".{ending}"):
                return name
    close = difflib.get_close_matches(module, known, n=1, cutoff=0.0)
    return close[0] if close else None
