from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.card import Card, Module
from exporter.specs import check_spec, parse_spec, spec_of
from exporter.structure import ModuleStructure, Structure
from registry.digest import Digest
from registry.errors import InputError

MODULES = {
    "model.embed_tokens": Module("embedding", 64, 32, bias=False),
    **{
        f"model.layers.{layer}.self_attn.{name}": Module("linear", 32, 16, bias=False)
        for layer in range(2)
        for name in ("q_proj", "v_proj")
    },
    "model.norm": Module("norm", 32, 32, bias=False),
    "lm_head": Module("linear", 32, 64, bias=False),
}
CARD = Card("LlamaForCausalLM", "F32", MODULES, Digest.of(b"base"))
LINEAR = [name for name, module in MODULES.items() if module.kind == "linear"]
Q0, Q1 = (f"model.layers.{layer}.self_attn.q_proj" for layer in range(2))
V0, V1 = (f"model.layers.{layer}.self_attn.v_proj" for layer in range(2))


def structure(*names: str, **shape: int | bool) -> Structure:
    return Structure(dict.fromkeys(names, ModuleStructure(**shape)))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("r16:all-linear", structure(Q0, Q1, V0, V1, lora=16)),
        ("r8:q_proj", structure(Q0, Q1, lora=8)),
        (f"r8:v_proj,{Q0}", structure(V0, V1, Q0, lora=8)),
        (f"r2:lm_head,{Q1}", structure("lm_head", Q1, lora=2)),
        ("r4+dora:q_proj", structure(Q0, Q1, lora=4, dora=True)),
        ("r4+lora_bias:all-linear", structure(Q0, Q1, V0, V1, lora=4, lora_bias=True)),
    ],
)
def test_a_spec_names_linear_modules_as_peft_does(text: str, meant: Structure) -> None:
    assert parse_spec(text, CARD) == meant
    head, _, targets = spec_of(meant, CARD).partition(":")
    assert head == text.partition(":")[0]
    assert sorted(targets.split(",")) == sorted(text.partition(":")[2].split(","))


def test_spaces_and_another_order_mean_the_same() -> None:
    assert (
        parse_spec("r8:q_proj, v_proj", CARD)
        == parse_spec("r8:v_proj,q_proj", CARD)
        == parse_spec("r8:All-Linear", CARD)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "16:q_proj",
        "r0:q_proj",
        "r8",
        "r8:",
        "r8:q_proj,",
        "r8:,q_proj",
        "r8+fast:q_proj",
        "r8+dora+lora_bias:q_proj",
    ],
)
def test_what_is_no_spec_is_refused_without_any_foundation(text: str) -> None:
    with pytest.raises(InputError, match="is not a structure"):
        check_spec(text)


@pytest.mark.parametrize("target", ["q_projx", "norm", "proj", "embed_tokens"])
def test_a_target_that_no_linear_module_answers_to_is_refused_with_those_that_do(target: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(f"r8:{target}", CARD)
    assert caught.value.hint == "lm_head, q_proj, v_proj"


@pytest.mark.parametrize(
    "beyond",
    [
        Structure(),
        Structure({Q0: ModuleStructure(lora=4), Q1: ModuleStructure(lora=2)}),
        structure("model.norm", weight=True),
        structure("model.embed_tokens", embedding=4),
        structure(Q0, lora=4, bias=True),
        structure(Q0, Q1, lora=4).with_equal([[f"{Q0}.lora_B", f"{Q1}.lora_B"]]),
    ],
)
def test_what_a_spec_has_no_words_for_has_none(beyond: Structure) -> None:
    assert spec_of(beyond, CARD) is None


@given(st.sets(st.sampled_from(LINEAR), min_size=1), st.integers(1, 64), st.sampled_from(["", "dora", "lora_bias"]))
def test_every_structure_of_one_rank_has_a_spec_that_means_it(names: set[str], rank: int, option: str) -> None:
    one = structure(*names, lora=rank, **({option: True} if option else {}))
    assert parse_spec(spec_of(one, CARD), CARD) == one
