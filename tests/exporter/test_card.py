from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.card import Card, KnownStructure, Module, TokenizerCard
from registry import canonical
from registry.digest import Digest
from registry.errors import FormatError
from tests.exporter.adapters import card_of, gpt2, llama


def full() -> Card:
    tokenizer = TokenizerCard(
        {"tokenizer.json": Digest.of(b"t")},
        "tokenizer.json",
        Digest.of(b"v"),
        64,
        Digest.of(b"r"),
        Digest.of(b"c"),
        (2,),
    )
    return card_of(
        llama(tie_word_embeddings=True),
        foundation=Digest.of(b"f"),
        name="tiny",
        max_positions=128,
        tokenizer=tokenizer,
        structures=(KnownStructure(Digest.of(b"s"), "rank 8 on q_proj (2 modules)"),),
        dead=("model.layers.0.self_attn.q_proj",),
        quantization={"scheme": "8da4w", "group": 32},
    )


@pytest.mark.parametrize("card", [full(), card_of(gpt2()), replace(card_of(llama()), tensors={})])
def test_a_card_is_what_its_document_says(card: Card) -> None:
    document = canonical.loads(canonical.dumps(card.to_json()), what="card")
    assert Card.from_json(document) == card


def test_optional_members_may_be_absent() -> None:
    document = {
        key: full().to_json()[key] for key in ("schema", "architecture", "factor_dtype", "base", "modules", "tied")
    }
    card = Card.from_json(document)
    assert (card.tokenizer, card.structures, card.tensors, card.foundation) == (None, (), {}, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "card: schema 2, this program reads 1"),
        ({"factor_dtype": "BF16"}, "card.factor_dtype: 'BF16' is not one of F32, F16"),
        ({"base": "sha256:abc"}, "card.base: not a digest"),
        ({"base": None}, "card.base: expected a string, got NoneType"),
        ({"modules": []}, "card.modules: expected an object, got list"),
        ({"modules": {"m": {"kind": "linear", "in": 1, "out": 1}}}, "card.modules.m: 'bias' is missing"),
        ({"modules": {"m": {"kind": "linear", "in": -1, "out": 1, "bias": False}}}, "expected an integer >= 0, got -1"),
        ({"tied": ["x"]}, "card.tied[0]: expected an array, got str"),
        ({"tensors": {"t": {"dtype": "F32", "shape": ["a"]}}}, "card.tensors.t.shape: expected an integer"),
        ({"tokenizer": 3}, "card.tokenizer: expected an object, got int"),
        ({"structures": [{"digest": "x", "text": "y"}]}, "card.structures[0].digest: not a digest"),
    ],
)
def test_a_wrong_member_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Card.from_json({**full().to_json(), **change})
    assert message in caught.value.message


@pytest.mark.parametrize("document", [None, 3, [], "x", {}])
def test_what_is_no_card_is_a_format_error(document: Any) -> None:
    with pytest.raises(FormatError):
        Card.from_json(document)


def test_the_card_of_a_model_of_billions_is_under_a_megabyte() -> None:
    layer = {
        "q_proj": 1,
        "k_proj": 1,
        "v_proj": 1,
        "o_proj": 1,
        "gate_proj": 1,
        "up_proj": 1,
        "down_proj": 1,
        "norm": 1,
    }
    names = [f"model.layers.{index}.block.{name}" for index in range(126) for name in layer]
    one = full()
    tensor = next(iter(one.tensors.values()))
    card = replace(
        one,
        modules={name: Module("linear", 16384, 16384, bias=False) for name in names},
        tensors={f"{name}.weight": tensor for name in names},
        structures=one.structures * 200,
    )
    assert len(canonical.dumps(card.to_json())) < 1 << 20


def test_tied_modules_share_their_base_tensor() -> None:
    tied, untied = full(), card_of(llama())
    assert tied.base_tensor("lm_head", "weight") == tied.tensors["model.embed_tokens.weight"]
    assert untied.base_tensor("lm_head", "weight") == untied.tensors["lm_head.weight"]
    assert untied.base_tensor("lm_head", "bias") is None
    assert tied.tied_with("lm_head") == ("model.embed_tokens",)
    assert untied.tied_with("lm_head") == ()


def test_a_tied_weight_is_dead_only_under_all_of_its_names() -> None:
    document = full().to_json()
    assert Card.from_json({**document, "dead": ["model.embed_tokens", "model.norm"]}).dead == ("model.norm",)
    both = ("lm_head", "model.embed_tokens")
    assert Card.from_json({**document, "dead": list(both)}).dead == both


def test_the_input_embedding_is_the_tied_or_the_largest_one() -> None:
    assert card_of(gpt2()).input_embedding == "transformer.wte"
    assert card_of(llama()).input_embedding == "model.embed_tokens"
    assert replace(full(), modules={}).input_embedding is None


def test_heads_are_what_all_linear_leaves_out() -> None:
    assert [name for name in full().modules if full().is_head(name)] == ["lm_head"]
    assert not full().is_head("no such module")


def test_weights_have_the_shapes_of_a_checkpoint() -> None:
    for model in (llama(), gpt2()):
        card = card_of(model)
        for name, module in card.modules.items():
            assert tuple(model.get_submodule(name).weight.shape) == module.weight_shape
