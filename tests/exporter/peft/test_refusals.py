"""The cases of adapter-semantics.md that need no export: accepted, accepted with a word, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.card import Card, Module
from exporter.fold import fold
from exporter.peft.findings import Findings
from exporter.peft.gate import Checked, check
from exporter.peft.pin import Pin, read_pin
from registry.digest import Digest
from registry.errors import AdapterRefused
from tests.exporter.adapters import LAYERS, PREFIX, Q, card_of, digest_of, llama, messages, q_tensors, write

A0, B0 = (f"{PREFIX}{LAYERS[0]}.q_proj.lora_{part}.weight" for part in "AB")
A1, B1 = (f"{PREFIX}{LAYERS[1]}.q_proj.lora_{part}.weight" for part in "AB")
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def card() -> Card:
    return card_of(llama())


@pytest.fixture(scope="module")
def biased() -> Card:
    return card_of(llama(attention_bias=True))


@pytest.fixture(scope="module")
def tied() -> Card:
    return card_of(llama(tie_word_embeddings=True))


def zeros(*shape: int) -> np.ndarray:
    return np.full(shape, 0.5, np.float32)


def zero_if(condition: bool, tensor: np.ndarray) -> np.ndarray:
    return np.zeros_like(tensor) if condition else tensor


def errors_of(directory: Path, card: Card, tensors: Tensors, config: Any = None, **changes: Any) -> list[str]:
    """What the gate refuses; nothing refused must fold, and each refusal says what to do."""
    checked = check(write(directory, tensors, config, **changes), card)
    assert all(finding.hint for finding in checked.findings if finding.level == "error")
    assert (checked.adapter is None) == bool(messages(checked))
    return messages(checked)


def test_the_minimal_config_is_enough(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors()), card, base_fingerprint=card.base)
    assert checked.findings == ()
    assert {module.scaling for module in checked.accept().modules.values()} == {2.0}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lora_alpha", None, "'lora_alpha' is missing"),
        ("r", None, "'r' is missing"),
        ("peft_type", None, "'peft_type' is missing"),
        ("r", True, "'r' must be an integer >= 1, not True"),
        ("r", 0, "'r' must be an integer >= 1, not 0"),
        ("r", 4.0, "'r' must be an integer >= 1, not 4.0"),
        ("lora_alpha", "8", "'lora_alpha' must be a finite number, not '8'"),
        ("lora_alpha", True, "'lora_alpha' must be a finite number, not True"),
        ("lora_alpha", 10**400, f"'lora_alpha' must be a finite number, not {10**400}"),
        ("use_rslora", "true", "'use_rslora' must be true or false, not 'true'"),
        ("bias", "some", "'bias' must be 'none', 'all' or 'lora_only', not 'some'"),
        ("modules_to_save", "lm_head", "'modules_to_save' must be a list of names, not 'lm_head'"),
        ("layers_to_transform", [0.5], "'layers_to_transform' must be a layer index or a list of them, not [0.5]"),
        ("rank_pattern", {"q_proj": 0}, "'rank_pattern' must be an object of name patterns, each with an integer >= 1"),
        ("rank_pattern", {"(": 4}, "'rank_pattern': not a regular expression"),
        ("alpha_pattern", {"q_proj": None}, "'alpha_pattern' must be an object of name patterns, each with a finite"),
        ("layers_pattern", "layers", "'layers_pattern' has no meaning without 'layers_to_transform'"),
        ("target_modules", "(.+)+#", "'target_modules': '(.+)+#' takes too long to match the names of this base"),
        ("init_lora_weights", "loftq", "'init_lora_weights' is 'loftq': LoftQ quantizes"),
        ("init_lora_weights", "bestinit", "the initialization 'bestinit' is not known"),
        ("loftq_config", {"loftq_bits": 4}, "'loftq_config' is not supported: LoftQ quantizes"),
        ("target_parameters", ["mlp.experts.gate_up_proj"], "'target_parameters' is not supported: LoRA on bare"),
        ("alora_invocation_tokens", [5, 6], "'alora_invocation_tokens' is not supported: Activated LoRA"),
        ("layer_replication", [[0, 2], [1, 2]], "'layer_replication' is not supported: replicated layers"),
        ("use_qalora", True, "'use_qalora' is not supported: QALoRA"),
        ("kasa_config", {"beta": 1e-4, "gamma": 1e-3}, "'kasa_config' is not supported: KaSA"),
        ("use_bdlora", {"nblocks": 2}, "'use_bdlora' is not supported: BD-LoRA"),
        ("monteclora_config", {"num_samples": 8}, "'monteclora_config' is not supported: MonteCLoRA"),
        ("arrow_config", {"top_k": 3}, "'arrow_config' is not supported: Arrow"),
        ("megatron_config", {"x": 1}, "'megatron_config' is not supported: Megatron"),
        ("foo_config", {"x": 1}, "the field 'foo_config' is not known, and it is set"),
        ("foo_config", 0, "the field 'foo_config' is not known, and it is set"),
    ],
)
def test_a_field_that_is_wrong_or_not_supported_is_named(
    tmp_path: Path, card: Card, field: str, value: Any, message: str
) -> None:
    (found,) = errors_of(tmp_path, card, q_tensors(), **{field: value})
    assert found.startswith(f"adapter_config.json: {message}")


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_an_unknown_field_that_asks_for_nothing_is_accepted(tmp_path: Path, card: Card, value: Any) -> None:
    assert errors_of(tmp_path, card, q_tensors(), foo_config=value) == []


@pytest.mark.parametrize("kind", ["ADALORA", "LOHA", "LOKR", "IA3", "VERA", "XLORA", "TRAINABLE_TOKENS", "lora", 7])
def test_another_type_of_adapter_is_refused_with_pefts_conversion(tmp_path: Path, card: Card, kind: Any) -> None:
    checked = check(write(tmp_path, q_tensors(), peft_type=kind), card)
    assert messages(checked) == [f"adapter_config.json: adapters of type {kind!r} are not supported, only LORA"]
    assert "save_as_lora" in checked.findings[0].hint


@pytest.mark.parametrize("init", [True, False, None, "gaussian", "eva", "orthogonal", "mica", "Gaussian"])
def test_an_initialization_that_leaves_the_base_is_plain(tmp_path: Path, card: Card, init: Any) -> None:
    assert errors_of(tmp_path, card, q_tensors(), init_lora_weights=init) == []


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_4", "olora", "corda", "lora_ga"])
def test_an_initialization_that_changes_the_base_is_refused(tmp_path: Path, card: Card, init: str) -> None:
    assert errors_of(tmp_path, card, q_tensors(), init_lora_weights=init) == [
        f"adapter_config.json: 'init_lora_weights' is {init!r}: it took a part out of the base"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({A0: zeros(4, 30)}, f"{A0}: expects in_features 32, got 30"),
        ({B0: zeros(30, 4)}, f"{B0}: expects out_features 32, got 30"),
        ({B0: zeros(32, 8)}, "model.layers.0.self_attn.q_proj: inner ranks differ: lora_A has 4, lora_B has 8"),
        ({A0: zeros(0)}, f"{A0}: shape [0] is a shard that was not gathered (DeepSpeed ZeRO-3 or FSDP)"),
        ({A0: zeros(0, 32)}, f"{A0}: shape [0, 32] is a shard that was not gathered (DeepSpeed ZeRO-3 or FSDP)"),
        ({A0: zeros(4, 32, 1, 1)}, f"{A0}: shape [4, 32, 1, 1] is LoRA on a convolution, which is not supported"),
        ({B1: None}, f"{B1} is missing"),
        ({A1: None}, f"{A1} is missing"),
        ({A1: None, B1: None}, f"{LAYERS[1]}.q_proj is targeted but has no tensors"),
        ({A0: np.float64(q_tensors()[A0])}, f"{A0}: factors of dtype F64 are not supported"),
        ({A0: np.zeros((4, 32), np.int8)}, f"{A0}: factors of dtype I8 are not supported"),
        ({B0: np.full((32, 4), np.nan, np.float32)}, f"{B0}: holds NaN"),
        ({B0: np.full((32, 4), -np.inf, np.float32)}, f"{B0}: holds infinity"),
        ({f"{PREFIX}foo.lora_A.weight": zeros(4, 32)}, f"{PREFIX}foo.lora_A.weight matches no module of the base"),
        ({f"{PREFIX}{LAYERS[0]}.q_proj.lora_C": zeros(4)}, f"{PREFIX}{LAYERS[0]}.q_proj.lora_C matches no module"),
        ({f"{PREFIX}model.norm.lora_A.weight": zeros(4, 32)}, "this LoRA does not fit model.norm, which is a norm"),
        (
            {f"{PREFIX}{LAYERS[0]}.q_proj.lora_magnitude_vector": zeros(32)},
            "q_proj.lora_magnitude_vector is there, although the config does not say 'use_dora'",
        ),
        (
            {f"{PREFIX}{LAYERS[0]}.q_proj.lora_B.bias": zeros(32)},
            "q_proj.lora_B.bias is there, although the config does not say 'lora_bias'",
        ),
        (
            {f"{PREFIX}{LAYERS[0]}.k_proj.lora_{part}.weight": shape for part, shape in
             (("A", zeros(4, 32)), ("B", zeros(16, 4)))},
            f"{LAYERS[0]}.k_proj has LoRA tensors, but the config does not target it",
        ),
        (
            {f"{PREFIX}{LAYERS[0]}.q_proj.base_layer.bias": zeros(32)},
            f"{LAYERS[0]}.q_proj has no bias in this foundation: another base?",
        ),
        ({f"{PREFIX}lm_head.weight": zeros(66, 32)}, "lm_head.weight: vocabulary 66 vs base 64"),
        ({f"{PREFIX}model.embed_tokens.weight": zeros(66, 32)}, "embed_tokens.weight: vocabulary 66 vs base 64"),
        ({f"{PREFIX}model.norm.weight": zeros(33)}, "model.norm.weight: shape [33], the base has [32]"),
        (
            {f"{PREFIX}model.norm.weight": zeros(32)},
            "model.norm.weight differs from the base: trained on a different base, or not listed in the config",
        ),
        (
            {f"{PREFIX}lm_head.base_layer.weight": zeros(64, 32)},
            "lm_head.base_layer.weight differs from the base: trained on a different base",
        ),
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_right_is_named(
    tmp_path: Path, card: Card, change: dict[str, Any], message: str
) -> None:
    tensors = {name: tensor for name, tensor in {**q_tensors(), **change}.items() if tensor is not None}
    found = errors_of(tmp_path, card, tensors)
    assert [text for text in found if message in text], found


def test_the_rank_in_the_tensors_must_be_the_configs(tmp_path: Path, card: Card) -> None:
    assert errors_of(tmp_path, card, q_tensors(), r=8) == [
        f"rank 4 in tensors, 8 in config for {layer}.q_proj" for layer in LAYERS
    ]
    found = errors_of(tmp_path / "b", card, q_tensors(), rank_pattern={"layers.1.self_attn.q_proj": 2})
    assert found == [f"rank 4 in tensors, 2 in rank_pattern 'layers.1.self_attn.q_proj' for {LAYERS[1]}.q_proj"]


def test_every_error_is_found_at_once(tmp_path: Path, card: Card) -> None:
    tensors = {**q_tensors(), A0: zeros(4, 30), f"{PREFIX}foo.weight": zeros(3)}
    found = errors_of(tmp_path, card, tensors, lora_alpha=None, kasa_config={"beta": 1})
    assert len(found) == 4
    strange = {f"x.{name.removeprefix(PREFIX)}": tensor for name, tensor in q_tensors().items()}
    found = errors_of(tmp_path / "b", card, strange, lora_alpha=None)
    assert [text.partition(";")[0] for text in found] == [
        "adapter_config.json: 'lora_alpha' is missing",
        "0 of 4 tensors match the base",
    ]
    (tmp_path / "b" / "adapter_model.safetensors").unlink()
    assert messages(check(tmp_path / "b", card)) == [
        "adapter_model.safetensors is missing",
        "adapter_config.json: 'lora_alpha' is missing",
    ]


def test_a_listed_target_without_tensors_is_refused_unless_explained(tmp_path: Path, card: Card) -> None:
    both = ["q_proj", "v_proj"]
    assert errors_of(tmp_path / "a", card, q_tensors(), target_modules=both) == ["v_proj has no tensors"]
    explained = {"target_modules": both, "exclude_modules": ["v_proj"]}
    assert errors_of(tmp_path / "b", card, q_tensors(), **explained) == []
    first = {name: tensor for name, tensor in q_tensors().items() if "layers.0" in name}
    assert errors_of(tmp_path / "c", card, first, layers_to_transform=0) == []
    assert errors_of(tmp_path / "d", card, first, layers_to_transform=[0], layers_pattern="layers") == []
    assert errors_of(tmp_path / "e", card, first, layers_to_transform=[1]) == [
        f"{LAYERS[1]}.q_proj is targeted but has no tensors",
        f"{LAYERS[0]}.q_proj has LoRA tensors, but the config does not target it: PEFT would ignore them",
    ]


@pytest.mark.parametrize(
    "targets",
    [
        ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"],
        r".*\.q_proj",
        r"model\.layers\.\d+\.self_attn\.q_proj",
    ],
)
def test_full_paths_and_expressions_are_targets(tmp_path: Path, card: Card, targets: Any) -> None:
    assert errors_of(tmp_path, card, q_tensors(), target_modules=targets) == []


def test_an_expression_must_match_the_whole_name(tmp_path: Path, card: Card) -> None:
    found = errors_of(tmp_path, card, q_tensors(), target_modules="q_proj")
    assert [text.partition(" ")[0] for text in found] == [f"{layer}.q_proj" for layer in LAYERS]


def test_a_pattern_key_that_matches_nothing_is_a_warning(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), alpha_pattern={"^q_proj": 100}), card, base_fingerprint=card.base)
    assert messages(checked, "warning") == [
        "adapter_config.json: the key '^q_proj' of 'alpha_pattern' matches no adapted module"
    ]
    assert {module.scaling for module in checked.accept().modules.values()} == {2.0}


def test_the_first_matching_pattern_key_wins(tmp_path: Path, card: Card) -> None:
    patterns = {"self_attn.q_proj": 12, "model.layers.0.self_attn.q_proj": 100}
    adapter = check(write(tmp_path, q_tensors(), alpha_pattern=patterns), card).accept()
    assert {module.scaling for module in adapter.modules.values()} == {3.0}


def test_a_factor_that_a_runtime_takes_for_zero_is_refused_where_the_other_makes_up_for_it(
    tmp_path: Path, card: Card
) -> None:
    sizes = {"lora_A": 1e-38, "lora_B": 1e36}
    tensors = {name: each * np.float32(sizes[name.split(".")[-2]]) for name, each in q_tensors().items()}
    first, _ = errors_of(tmp_path / "a", card, tensors)
    assert "model.layers.0.self_attn.q_proj: a factor of at most" in first
    dead = {name: each * np.float32(1e-38 if "lora_B" in name else 1) for name, each in q_tensors().items()}
    assert errors_of(tmp_path / "b", card, dead) == []  # a module that weight decay ended


def test_fan_in_fan_out_on_a_linear_base_is_a_warning(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), fan_in_fan_out=True), card, base_fingerprint=card.base)
    assert messages(checked, "warning") == [
        "adapter_config.json: 'fan_in_fan_out' is true, but no adapted module is a Conv1D: nothing is transposed"
    ]


def test_an_adapter_of_zeros_is_accepted_with_a_warning(tmp_path: Path, card: Card) -> None:
    tensors = {name: zero_if("lora_B" in name, tensor) for name, tensor in q_tensors().items()}
    checked = check(write(tmp_path, tensors), card, base_fingerprint=card.base)
    assert messages(checked, "warning") == ["no effect: the adapter computes what the base computes"]
    structure = fold(checked.accept(), card).structure
    assert structure.equal == (tuple(f"{layer}.q_proj.lora_B" for layer in LAYERS),)


def test_modules_that_the_graph_does_not_use_are_a_warning(tmp_path: Path, card: Card) -> None:
    dead = replace(card, dead=(f"{LAYERS[1]}.q_proj",))
    checked = check(write(tmp_path, q_tensors()), dead, base_fingerprint=card.base)
    assert messages(checked, "warning") == [
        f"{LAYERS[1]}.q_proj: the exported graph does not use it, so it has no effect"
    ]


def test_a_value_that_overflows_half_precision_is_refused_where_factors_are_halves(tmp_path: Path, card: Card) -> None:
    tensors = q_tensors()
    tensors[B0][3, 2] = 1e6
    halves = replace(card, factor_dtype="F16")
    assert errors_of(tmp_path / "a", card, tensors) == []
    assert errors_of(tmp_path / "b", halves, tensors) == [f"{B0}: 1e+06 times the scaling 2 overflows F16"]
    tensors[B0][3, 2] = 65504 / 2
    assert errors_of(tmp_path / "c", halves, tensors) == []


def test_dora_without_its_magnitude_is_refused(tmp_path: Path, card: Card) -> None:
    found = errors_of(tmp_path, card, q_tensors(), use_dora=True)
    assert found == [
        f"{layer}.q_proj: lora_magnitude_vector is missing, although the config says 'use_dora'" for layer in LAYERS
    ]


def test_dora_is_accepted_on_a_quantized_foundation_as_on_any_other(tmp_path: Path, card: Card) -> None:
    magnitudes = {f"{PREFIX}{layer}.q_proj.lora_magnitude_vector": zeros(32) for layer in LAYERS}
    quantized = replace(card, quantization={"mode": "8da4w", "group_size": 32, "embedding_bits": None})
    tensors = {**q_tensors(), **magnitudes}
    assert errors_of(tmp_path / "a", card, tensors, use_dora=True) == []
    assert errors_of(tmp_path / "b", quantized, tensors, use_dora=True) == []


@pytest.mark.parametrize("ending", ["", ".weight", ".default", ".default.weight"])
def test_a_magnitude_is_known_by_each_of_its_names(tmp_path: Path, card: Card, ending: str) -> None:
    name = f"q_proj.lora_magnitude_vector{ending}"
    tensors = {**q_tensors(), **{f"{PREFIX}{layer}.{name}": zeros(32) for layer in LAYERS}}
    assert errors_of(tmp_path, card, tensors, use_dora=True) == []


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (lambda name: name.replace("lora_B.weight", "dora_scale"), "lycoris-dora"),
        (lambda name: name.removeprefix(PREFIX).replace("lora_A.weight", "lora_a"), "mlx-lm"),
        (
            lambda name: f"layers.0.attn.q_proj.lora_{name[-8].lower()}.weight" if "layers.0" in name else f"x.{name}",
            "torchtune",
        ),
        (lambda name: name.replace("lora_A", "lora_down").replace("lora_B", "lora_up"), "kohya"),
        (lambda name: name.replace("lora_A.weight", "hada_w1_a"), "loha"),
        (lambda name: name.replace("lora_A.weight", "lokr_w1"), "lokr"),
        (lambda name: name.replace("lora_A.weight", "lora_E"), "adalora"),
    ],
)
def test_another_tools_spelling_is_refused_by_its_name(tmp_path: Path, card: Card, names: Any, code: str) -> None:
    tensors = {names(name): tensor for name, tensor in q_tensors().items()}
    checked = check(write(tmp_path, tensors), card)
    assert [(finding.level, finding.code) for finding in checked.findings] == [("error", code)]
    assert checked.findings[0].hint


def test_an_mlx_directory_is_refused_by_name(tmp_path: Path, card: Card) -> None:
    shapes = {"lora_a": (32, 4), "lora_b": (4, 32)}
    tensors = {f"{layer}.q_proj.{part}": zeros(*shape) for layer in LAYERS for part, shape in shapes.items()}
    write(tmp_path, tensors, {"rank": 4, "scale": 20})
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapters.safetensors")
    (found,) = messages(check(tmp_path, card))
    assert "an MLX-LM adapter: factors stand transposed" in found


def test_names_that_match_nothing_are_summed_up_with_the_nearest(tmp_path: Path, card: Card) -> None:
    tensors = {name.replace("model.layers", "model.language_model.layers"): t for name, t in q_tensors().items()}
    checked = check(write(tmp_path, tensors), card)
    (finding,) = checked.findings
    first = f"{PREFIX}model.language_model.layers.0.self_attn.q_proj.lora_A.weight"
    assert finding.message == f"0 of 4 tensors match the base; the first is {first}"
    assert "nearest name in the base is model.layers.0.self_attn.q_proj" in finding.hint


def test_two_spellings_of_one_tensor_are_ambiguous(tmp_path: Path, card: Card) -> None:
    twice = A0.replace("lora_A.weight", "lora_A.default.weight")
    found = errors_of(tmp_path, card, {**q_tensors(), twice: zeros(4, 32)})
    assert found == [f"{twice} and {A0} are the same tensor: which is meant?"]


def test_one_of_several_adapters_must_be_selected(tmp_path: Path, card: Card) -> None:
    tensors = {
        name.replace(".weight", f".{adapter}.weight"): tensor * scale
        for adapter, scale in (("first", 1), ("second", 3))
        for name, tensor in q_tensors().items()
    }
    directory = write(tmp_path, tensors)
    assert messages(check(directory, card)) == ["the file holds 2 adapters: first, second"]
    adapter = check(directory, card, adapter_name="second").accept()
    values = adapter.modules[f"{LAYERS[0]}.q_proj"].lora_a.load()
    assert np.array_equal(values, q_tensors()[A0] * 3)
    assert messages(check(directory, card, adapter_name="third"))[0] == (
        "the file holds no adapter 'third'; it holds first, second"
    )


def test_a_module_whose_name_contains_lora_is_a_module_of_the_base(tmp_path: Path, card: Card) -> None:
    module = Module("linear", 32, 32, bias=False)
    explorable = replace(card, modules={**card.modules, "model.layers.0.explorable_proj": module})
    tensors = {
        name.replace("self_attn.q_proj", "explorable_proj"): t for name, t in q_tensors().items() if "s.0" in name
    }
    assert errors_of(tmp_path, explorable, tensors, target_modules=["explorable_proj"]) == []


def test_a_config_that_asks_for_biases_on_a_base_without_any_is_as_none(tmp_path: Path, card: Card) -> None:
    assert errors_of(tmp_path, card, q_tensors(), bias="all") == []
    assert errors_of(tmp_path / "b", card, q_tensors(), bias="lora_only") == []


def test_biases_that_the_config_promises_must_be_there(tmp_path: Path, biased: Card) -> None:
    found = errors_of(tmp_path, biased, q_tensors(), bias="lora_only")
    assert found == [f"{LAYERS[0]}.q_proj.bias and 1 more missing, although the config says bias 'lora_only'"]


def test_biases_that_the_config_does_not_promise_must_be_the_bases(tmp_path: Path, biased: Card) -> None:
    name = f"{PREFIX}{LAYERS[0]}.q_proj.bias"
    assert errors_of(tmp_path / "a", biased, {**q_tensors(), name: zeros(32)}) == [
        f"{name} differs from the base: trained on a different base, or not listed in the config"
    ]
    own = llama(attention_bias=True).get_parameter(f"{LAYERS[0]}.q_proj.bias").detach().numpy()
    checked = check(write(tmp_path / "b", {**q_tensors(), name: own}), biased)
    assert messages(checked) == []
    assert checked.accept().modules[f"{LAYERS[0]}.q_proj"].bias is None


def test_dora_and_a_lora_bias_exclude_each_other(tmp_path: Path, card: Card) -> None:
    vectors = {"lora_magnitude_vector": zeros(32), "lora_B.bias": zeros(32)}
    extra = {f"{PREFIX}{layer}.q_proj.{part}": tensor for layer in LAYERS for part, tensor in vectors.items()}
    found = errors_of(tmp_path, card, {**q_tensors(), **extra}, use_dora=True, lora_bias=True)
    assert found == ["adapter_config.json: 'use_dora' and 'lora_bias' exclude each other, in PEFT as well"]


def test_a_tie_that_is_kept_needs_both_matrices(tmp_path: Path, tied: Card) -> None:
    tensors = {**q_tensors(), f"{PREFIX}model.embed_tokens.weight": zeros(64, 32)}
    options = {"modules_to_save": ["embed_tokens"]}
    assert errors_of(tmp_path / "a", tied, tensors, **options) == []
    found = errors_of(tmp_path / "b", tied, tensors, **options, ensure_weight_tying=True)
    assert found == ["lm_head.weight is missing, although modules_to_save lists its module"]


def test_biases_of_a_fused_projection_need_a_bias_on_every_part(tmp_path: Path, card: Card) -> None:
    names = ("q_proj", "k_proj", "v_proj")
    modules = {
        name: replace(module, bias=name.endswith(".q_proj")) if name.endswith(names) else module
        for name, module in card.modules.items()
    }
    fused = f"{PREFIX}{LAYERS[0]}.qkv_proj"
    tensors = {
        f"{fused}.lora_A.weight": zeros(4, 32),
        f"{fused}.lora_B.weight": zeros(64, 4),
        f"{fused}.base_layer.bias": zeros(64),
    }
    options = {"target_modules": ["qkv_proj"], "layers_to_transform": [0], "bias": "lora_only"}
    found = errors_of(tmp_path, replace(card, modules=modules), tensors, **options)
    assert found == [
        f"{fused}.base_layer.bias: {LAYERS[0]}.{name} has no bias in this foundation: another base?"
        for name in ("k_proj", "v_proj")
    ]


def test_lora_and_a_replaced_weight_contradict_each_other(tmp_path: Path, card: Card) -> None:
    tensors = {**q_tensors(), f"{PREFIX}{LAYERS[0]}.q_proj.weight": zeros(32, 32)}
    found = errors_of(tmp_path, card, tensors, modules_to_save=["layers.0.self_attn.q_proj"])
    assert f"{LAYERS[0]}.q_proj: LoRA and a replaced weight on one module contradict each other" in found


def test_two_biases_of_one_module_are_ambiguous(tmp_path: Path, biased: Card) -> None:
    name = f"{PREFIX}{LAYERS[0]}.q_proj"
    both = {f"{name}.bias": zeros(32), f"{name}.base_layer.bias": zeros(32)}
    found = errors_of(tmp_path, biased, {**q_tensors(), **both}, bias="lora_only")
    assert f"{LAYERS[0]}.q_proj: both {name}.bias and {name}.base_layer.bias are there: which is the bias?" in found


def test_a_part_of_the_base_that_no_adapter_may_touch_is_refused_by_kind(tmp_path: Path, card: Card) -> None:
    module = Module("conv2d", 3, 32, bias=False)
    patched = replace(card, modules={**card.modules, "vision.patch": module})
    tensors = {
        **q_tensors(),
        f"{PREFIX}vision.patch.lora_A.weight": zeros(4, 3, 2, 2),
        f"{PREFIX}vision.patch.lora_B.weight": zeros(32, 4, 1, 1),
    }
    found = errors_of(tmp_path, patched, tensors, target_modules=["q_proj", "patch"])
    assert found[0] == (f"{PREFIX}vision.patch.lora_A.weight: this LoRA does not fit vision.patch, which is a conv2d")


def test_vectors_must_have_one_value_per_output(tmp_path: Path, card: Card) -> None:
    magnitudes = {f"{PREFIX}{layer}.q_proj.lora_magnitude_vector": zeros(1, 32) for layer in LAYERS}
    found = errors_of(tmp_path, card, {**q_tensors(), **magnitudes}, use_dora=True)
    assert found == [f"{name}: shape [1, 32], expected [32]" for name in magnitudes]


def test_veloras_projection_without_its_config_is_refused(tmp_path: Path, card: Card) -> None:
    name = f"{PREFIX}{LAYERS[0]}.q_proj.lora_velora_embed"
    assert errors_of(tmp_path, card, {**q_tensors(), name: zeros(8)}) == [
        f"{name} is there, although the config does not say 'velora_config'"
    ]


def test_embedding_lora_needs_an_embedding_and_both_factors(tmp_path: Path, card: Card) -> None:
    first, second = "lora_embedding_A", "lora_embedding_B"
    name = f"{PREFIX}model.embed_tokens"
    found = errors_of(tmp_path / "a", card, {f"{name}.{first}": zeros(4, 64)}, target_modules=["embed_tokens"])
    assert found == [f"{name}.{second} is missing"]
    tensors = {f"{PREFIX}lm_head.{first}": zeros(4, 32), f"{PREFIX}lm_head.{second}": zeros(64, 4)}
    found = errors_of(tmp_path / "b", card, tensors, target_modules=["lm_head"])
    assert found == [f"{PREFIX}lm_head.{first}: this LoRA does not fit lm_head, which is a linear"]
    swapped = {f"{name}.{first}": zeros(4, 64), f"{name}.{second}": zeros(30, 5)}
    found = errors_of(tmp_path / "c", card, swapped, target_modules=["embed_tokens"])
    assert found == [
        "model.embed_tokens: inner ranks differ: lora_A has 4, lora_B has 5",
        f"{name}.{second}: expects embedding_dim 32, got 30",
    ]


def test_a_projection_changed_whole_and_in_part_is_ambiguous(tmp_path: Path, card: Card) -> None:
    fused = f"{PREFIX}{LAYERS[0]}.qkv_proj"
    tensors = {**q_tensors(), f"{fused}.lora_A.weight": zeros(4, 32), f"{fused}.lora_B.weight": zeros(64, 4)}
    found = errors_of(tmp_path, card, tensors, target_modules=["q_proj", "qkv_proj"])
    assert f"{LAYERS[0]}.qkv_proj and {LAYERS[0]}.q_proj both change {LAYERS[0]}.q_proj" in found


def test_many_stray_tensors_are_counted(tmp_path: Path, card: Card) -> None:
    stray = {f"{PREFIX}stray.{number:02}.lora_A.weight": zeros(4, 32) for number in range(25)}
    found = errors_of(tmp_path, card, {**q_tensors(), **stray})
    assert len(found) == 21
    assert found[-1] == "5 more tensors match no module of the base"


def test_many_targets_without_tensors_are_counted_and_take_no_time(tmp_path: Path, card: Card) -> None:
    targets = ["q_proj", *(f"proj_{number:05}" for number in range(60_000))]
    found = errors_of(tmp_path, card, q_tensors(), target_modules=targets, exclude_modules=targets[30:])
    assert len(found) == 21
    assert found[0] == "proj_00000 has no tensors"
    assert found[-1] == "each of 59980 more has no tensors"


def test_values_that_vanish_in_half_precision_are_a_warning(tmp_path: Path, card: Card) -> None:
    tensors = {name: tensor * np.float32(1e-12 if "lora_B" in name else 1) for name, tensor in q_tensors().items()}
    checked = check(write(tmp_path, tensors), replace(card, factor_dtype="F16"), base_fingerprint=card.base)
    assert messages(checked, "warning") == [
        f"{B0}: every value vanishes in F16",
        f"{B1}: every value vanishes in F16",
        "no effect: the adapter computes what the base computes",
    ]


def test_a_config_without_targets_lets_the_tensors_decide(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), target_modules=None), card, base_fingerprint=card.base)
    assert messages(checked, "warning") == ["adapter_config.json names no 'target_modules': the tensors decide"]
    assert checked.accept().modules.keys() == {f"{layer}.q_proj" for layer in LAYERS}


def test_layers_to_transform_has_no_meaning_beside_an_expression(tmp_path: Path, card: Card) -> None:
    found = errors_of(tmp_path, card, q_tensors(), target_modules=r".*q_proj", layers_to_transform=[0, 1])
    assert found == [
        "adapter_config.json: 'layers_to_transform' has no meaning beside an expression in 'target_modules'"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "ptdock.json: not JSON"),
        (b'{"schema": 9}', "ptdock.json: schema 9, this program reads 1"),
        (b'{"schema": 1, "base": "x"}', "ptdock.json.base: not a digest: 'x'"),
        (b'{"schema": 1, "lineage": []}', "ptdock.json.lineage: expected an object, got list"),
    ],
)
def test_a_damaged_pin_is_refused(tmp_path: Path, card: Card, data: bytes, message: str) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / "ptdock.json").write_bytes(data)
    (found,) = messages(check(directory, card))
    assert found.startswith(message)


def test_a_pin_is_what_its_bytes_say(card: Card) -> None:
    pin = Pin(card.base, {"owner": "crew"})
    assert read_pin(pin.to_bytes(), Findings()) == pin
    assert read_pin(Pin().to_bytes(), Findings()) == Pin()


def test_saved_modules_must_be_whole(tmp_path: Path, card: Card) -> None:
    tensors = {**q_tensors(), f"{PREFIX}model.norm.weight": zeros(32)}
    found = errors_of(tmp_path, card, tensors, modules_to_save=["norm"])
    assert len(found) == 4
    assert all(
        text.endswith("layernorm.weight is missing, although modules_to_save lists its module") for text in found
    )


def test_a_saved_module_that_the_base_lacks_is_a_warning(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), modules_to_save=["score"]), card, base_fingerprint=card.base)
    assert messages(checked, "warning") == ["modules_to_save lists 'score', which LlamaForCausalLM does not have"]


def test_a_resized_vocabulary_is_refused_with_both_sizes(tmp_path: Path, card: Card) -> None:
    names = [f"{PREFIX}lm_head.weight", f"{PREFIX}model.embed_tokens.weight"]
    found = errors_of(tmp_path / "a", card, {**q_tensors(), **{name: zeros(66, 32) for name in names}})
    assert found == [f"{name}: vocabulary 66 vs base 64" for name in names]
    head = {f"{PREFIX}lm_head.lora_A.weight": zeros(4, 32), f"{PREFIX}lm_head.lora_B.weight": zeros(66, 4)}
    found = errors_of(tmp_path / "b", card, {**q_tensors(), **head}, target_modules=["q_proj", "lm_head"])
    assert found == [f"{PREFIX}lm_head.lora_B.weight: vocabulary 66 vs base 64"]
    embedding = {
        f"{PREFIX}model.embed_tokens.lora_embedding_A": zeros(4, 66),
        f"{PREFIX}model.embed_tokens.lora_embedding_B": zeros(32, 4),
    }
    found = errors_of(tmp_path / "c", card, embedding, target_modules=["embed_tokens"])
    assert found == [f"{PREFIX}model.embed_tokens.lora_embedding_A: vocabulary 66 vs base 64"]


@pytest.mark.parametrize(
    ("indices", "rows", "message"),
    [
        ([1, 2], 3, "but the config lists 2 token indices"),
        ([1, 1], 2, "a token of model.embed_tokens is listed twice"),
        ([1, 70], 2, "trainable_token_indices: token 70, but the base's vocabulary is 64"),
        ([1, -1], 2, "'trainable_token_indices' must be token indices >= 0"),
        ([1, True], 2, "'trainable_token_indices' must be token indices >= 0"),
        ([1, 2], 0, "trainable_token_indices: no rows for model.embed_tokens in the file"),
        ({"embed": [1, 2]}, 2, "but the config lists 0 token indices"),
    ],
)
def test_token_rows_must_fit_their_indices(tmp_path: Path, card: Card, indices: Any, rows: int, message: str) -> None:
    name = f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    tensors = {**q_tensors(), **({name: zeros(rows, 32)} if rows else {})}
    found = errors_of(tmp_path, card, tensors, trainable_token_indices=indices)
    assert [text for text in found if message in text], found


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("model.layers.0.mlp.gate_proj", "token 70, but model.layers.0.mlp.gate_proj has 48 outputs"),
        ("lm_head", "token 70, but the base's vocabulary is 64"),
        ("model.layers.0.mlp.gate_up_proj", "replaced rows of model.layers.0.mlp.gate_up_proj are not supported"),
        ("model.norm", "replaced rows of model.norm are not supported, only of embeddings and linears"),
    ],
)
def test_token_rows_stand_on_embeddings_and_linears(tmp_path: Path, card: Card, site: str, message: str) -> None:
    tensors = {**q_tensors(), f"{PREFIX}{site}.token_adapter.trainable_tokens_delta": zeros(1, 32)}
    index = 5 if "not supported" in message else 70
    (found,) = errors_of(tmp_path, card, tensors, trainable_token_indices={site: [index]})
    assert message in found


def test_dora_on_an_embedding_is_refused_by_name(tmp_path: Path, card: Card) -> None:
    name = f"{PREFIX}model.embed_tokens"
    tensors = {
        f"{name}.lora_embedding_A": zeros(4, 64),
        f"{name}.lora_embedding_B": zeros(32, 4),
        f"{name}.lora_magnitude_vector": zeros(32),
    }
    found = errors_of(tmp_path, card, tensors, target_modules=["embed_tokens"], use_dora=True)
    assert found == ["model.embed_tokens: DoRA on an embedding is not supported"]


def test_the_bases_name_proves_nothing(tmp_path: Path, card: Card) -> None:
    checked = check(
        write(tmp_path, q_tensors(), base_model_name_or_path="/home/me/x"), card, base_fingerprint=card.base
    )
    assert messages(checked, "note") == ["trained on a base called '/home/me/x' (names prove nothing)"]
    assert messages(checked) == []


def test_a_pinned_base_must_be_the_foundations(tmp_path: Path, card: Card) -> None:
    other = card_of(llama(seed=7)).base
    directory = write(tmp_path, q_tensors(), base_model_name_or_path="acme/tiny")
    expected = f"trained on base {other.short}, the foundation holds {card.base.short}"
    assert messages(check(directory, card, base_fingerprint=other)) == [f"--base-fingerprint: {expected}"]
    (directory / "ptdock.json").write_text(json.dumps({"schema": 1, "base": str(other)}))
    assert messages(check(directory, card)) == [f"ptdock.json: {expected}"]
    lineage = {"run": "https://runs.example/17"}
    (directory / "ptdock.json").write_text(json.dumps({"schema": 1, "base": str(card.base), "lineage": lineage}))
    checked = check(directory, card)
    assert messages(checked, "warning") == []
    assert (checked.accept().pinned, checked.accept().lineage) == (card.base, lineage)


def test_a_base_that_nobody_pinned_is_a_warning(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors()), card)
    assert messages(checked, "warning") == ["base not pinned: nothing proves on which weights this adapter was trained"]


def test_an_adapter_trained_on_a_four_bit_base_gets_a_note(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), base_model_name_or_path="unsloth/tiny-bnb-4bit"), card)
    assert any(
        text.startswith("QLoRA: trained on the de-quantized 4-bit weights") for text in messages(checked, "note")
    )
    assert messages(checked) == []


def test_a_copy_of_the_bases_head_is_left_out_whatever_its_dtype(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    head = model.lm_head.weight.detach()
    name = f"{PREFIX}lm_head.base_layer.weight"
    adapter = check(write(tmp_path / "a", {**q_tensors(), name: head.numpy()}), card).accept()
    assert adapter.base_copies == {}
    assert adapter.modules.keys() == {f"{layer}.q_proj" for layer in LAYERS}
    halved = card_of(model.bfloat16())
    widened = model.lm_head.weight.detach().float().numpy()
    assert check(write(tmp_path / "b", {**q_tensors(), name: widened}), halved).accept().base_copies == {}
    narrow = check(write(tmp_path / "c", {**q_tensors(), name: model.lm_head.weight.detach()}), card)
    assert list(narrow.accept().base_copies) == ["lm_head"]
    rounded = f"{name} is a BF16 copy of the base's, and is left out: trained on rounded weights"
    assert rounded in messages(narrow, "warning")
    assert digest_of(head) == card.tensors["lm_head.weight"].digest


def test_refused_means_an_error_that_carries_all_findings(tmp_path: Path, card: Card) -> None:
    checked = check(write(tmp_path, q_tensors(), r=8), card)
    with pytest.raises(AdapterRefused) as caught:
        checked.accept()
    assert caught.value.message == f"rank 4 in tensors, 8 in config for {LAYERS[0]}.q_proj (and 1 more)"
    assert [entry["level"] for entry in caught.value.values["findings"]] == ["error", "error", "warning"]
    assert json.loads(json.dumps(caught.value.values["findings"]))


def test_a_config_without_a_base_digest_leaves_the_copy_to_folding(tmp_path: Path, card: Card) -> None:
    blind = replace(card, tensors={})
    name = f"{PREFIX}lm_head.base_layer.weight"
    adapter = check(write(tmp_path, {**q_tensors(), name: zeros(64, 32)}), blind).accept()
    assert list(adapter.base_copies) == ["lm_head"]
    quantized = replace(blind, quantization={"mode": "8da4w", "group_size": 32, "embedding_bits": None})
    checked = check(tmp_path, quantized)
    assert f"{name} cannot be compared with this foundation's base and is left out" in messages(checked, "warning")


def test_the_config_q_is_what_these_tests_start_from() -> None:
    assert Q == {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    assert Checked((), None).warnings == ()
    assert Digest.of(b"") != Digest.of(b"x")
