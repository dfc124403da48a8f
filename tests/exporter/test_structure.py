from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.card import Card, Module
from exporter.specs import parse_spec
from exporter.structure import ModuleStructure, Structure, split_factor
from registry import canonical
from registry.digest import Digest
from registry.errors import FormatError, InputError

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
Q0 = "model.layers.0.self_attn.q_proj"
BOOLEANS = st.booleans()
ENTRIES = st.builds(
    ModuleStructure,
    lora=st.integers(1, 9),
    lora_bias=BOOLEANS,
    dora=BOOLEANS,
    bias=BOOLEANS,
    weight=BOOLEANS,
    rows=st.lists(st.integers(0, 60), unique=True, max_size=3).map(lambda rows: tuple(sorted(rows))),
)
STRUCTURES = st.dictionaries(st.sampled_from(sorted(MODULES)), ENTRIES, max_size=4).map(Structure)


@given(STRUCTURES)
def test_a_structure_is_what_its_document_says(structure: Structure) -> None:
    document = canonical.loads(canonical.dumps(structure.to_json()), what="structure")
    assert Structure.from_json(document) == structure
    assert Structure.from_json(document).digest == structure.digest


@given(STRUCTURES)
def test_factors_are_sorted_by_name_and_known_by_their_names(structure: Structure) -> None:
    names = [spec.name for spec in structure.factors(CARD)]
    assert names == sorted(names) == list(structure.factor_names())
    assert all(split_factor(name)[0] in structure.modules for name in names)


def test_the_order_of_modules_and_groups_does_not_matter() -> None:
    entry = ModuleStructure(lora=2)
    names = sorted(MODULES)[1:3]
    forward = Structure(dict.fromkeys(names, entry), ((f"{names[0]}.lora_A", f"{names[1]}.lora_A"),))
    backward = Structure(dict.fromkeys(names[::-1], entry), ((f"{names[1]}.lora_A", f"{names[0]}.lora_A"),))
    assert forward == backward
    assert forward.digest == backward.digest
    assert forward.digest != Structure(forward.modules).digest


def test_the_document_holds_only_what_is_set() -> None:
    structure = Structure({Q0: ModuleStructure(lora=8, dora=True), "model.embed_tokens": ModuleStructure(rows=(3, 9))})
    assert structure.to_json() == {
        "schema": 1,
        "modules": {Q0: {"lora": 8, "dora": True}, "model.embed_tokens": {"rows": [3, 9]}},
        "equal": [],
    }
    assert Structure().to_json() == {"schema": 1, "modules": {}, "equal": []}


def test_each_extra_has_its_factor_and_shape() -> None:
    every = ModuleStructure(lora=8, lora_bias=True, dora=True, bias=True)
    structure = Structure(
        {
            Q0: every,
            "model.norm": ModuleStructure(weight=True),
            "lm_head": ModuleStructure(weight=True),
            "model.embed_tokens": ModuleStructure(embedding=4),
        }
    )
    assert {spec.name: spec.shape for spec in structure.factors(CARD)} == {
        f"{Q0}.lora_A": (8, 32),
        f"{Q0}.lora_B": (16, 8),
        f"{Q0}.lora_B.bias": (16,),
        f"{Q0}.dora_scale": (16,),
        f"{Q0}.bias": (16,),
        "model.norm.weight": (32,),
        "lm_head.weight": (64, 32),
        "model.embed_tokens.lora_embedding_A": (4, 64),
        "model.embed_tokens.lora_embedding_B": (32, 4),
    }
    rows = Structure({"model.embed_tokens": ModuleStructure(rows=(1, 5))})
    assert [(spec.name, spec.shape, spec.dtype) for spec in rows.factors(CARD)] == [
        ("model.embed_tokens.rows", (2, 32), "F32")
    ]


def test_a_structure_of_another_architecture_names_the_module() -> None:
    with pytest.raises(InputError, match=r"the structure names model\.foo, which LlamaForCausalLM does not have"):
        Structure({"model.foo": ModuleStructure(lora=2)}).factors(CARD)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (f"{Q0}.lora_B.bias", (Q0, "lora_B.bias")),
        (f"{Q0}.bias", (Q0, "bias")),
        (f"{Q0}.lora_B", (Q0, "lora_B")),
        ("model.embed_tokens.rows", ("model.embed_tokens", "rows")),
    ],
)
def test_a_factor_name_is_module_and_suffix(name: str, parts: tuple[str, str]) -> None:
    assert split_factor(name) == parts


@pytest.mark.parametrize("name", ["", "lora_A", ".lora_A", f"{Q0}.lora_C"])
def test_what_is_no_factor_name_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        split_factor(name)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"schema": 2, "modules": {}, "equal": []},
        {"schema": 1, "modules": {Q0: {}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"lora": True}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"lora": -1}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"lora": 4, "new": 1}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"dora": True}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"rows": [3, 1]}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"rows": [1, 1]}}, "equal": []},
        {"schema": 1, "modules": {Q0: {"lora": 4}}, "equal": [["x.lora_A", "y.lora_A"]]},
        {"schema": 1, "modules": {Q0: {"lora": 4}}, "equal": [[f"{Q0}.lora_A"]]},
        {"schema": 1, "modules": {Q0: {"lora": 4}}, "equal": [[f"{Q0}.lora_A", f"{Q0}.lora_A"]]},
        {"schema": 1, "modules": {Q0: {"lora": 4}}, "equal": [f"{Q0}.lora_A"]},
    ],
)
def test_a_wrong_document_is_a_format_error(document: Any) -> None:
    with pytest.raises(FormatError):
        Structure.from_json(document)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["schema", "modules", "equal", "lora", Q0]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["schema", "modules", "equal", "lora", "rows", Q0]), inner, max_size=3)
        ),
    )
)
def test_any_json_is_a_structure_or_a_format_error(document: Any) -> None:
    try:
        structure = Structure.from_json(document)
    except FormatError:
        return
    assert Structure.from_json(structure.to_json()) == structure


def test_a_structure_describes_itself_in_one_line() -> None:
    assert Structure().describe() == "the base program"
    assert parse_spec("r8:q_proj,v_proj", CARD).describe() == "rank 8 on q_proj, v_proj (4 modules)"
    mixed = Structure(
        {
            Q0: ModuleStructure(lora=4, dora=True, bias=True),
            "lm_head": ModuleStructure(weight=True),
            "model.embed_tokens": ModuleStructure(rows=(1, 2)),
            **{f"model.layers.{layer}.mlp.up_proj": ModuleStructure(rows=(layer,)) for layer in range(2)},
        },
        ((f"{Q0}.bias", f"{Q0}.dora_scale"),),
    )
    assert mixed.describe() == (
        "DoRA rank 4 on q_proj (1 module); replaces the weight of lm_head (1 module); replaces the bias of q_proj "
        "(1 module); 2 token rows of embed_tokens; 1 token row of up_proj (2 modules); 1 group of equal factors"
    )
