"""Whatever stands in an adapter's directory: findings or an adapter, never an exception; and an adapter folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.card import Card
from exporter.fold import fold
from exporter.peft.config import IMPLEMENTED, REFUSED
from exporter.peft.gate import Checked, check
from exporter.peft.names import Part
from registry.errors import AdapterRefused
from tests.exporter.adapters import LAYERS, PREFIX, ModelRows, card_of, llama, messages, q_tensors, write

MODEL = llama(tie_word_embeddings=True, attention_bias=True)
MANY = settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="module")
def card() -> Card:
    return card_of(MODEL)


def accounted_for(checked: Checked, card: Card) -> None:
    """Refused with a reason and a way out, or folded into exactly the factors of its structure."""
    assert (checked.adapter is None) == bool(messages(checked))
    assert [found for found in checked.findings if found.level == "error" and not found.hint] == []
    if checked.adapter is None:
        return
    try:
        folded = fold(checked.adapter, card, ModelRows(MODEL))
    except AdapterRefused:
        return
    specs = folded.structure.factors(card)
    assert [(spec.name, spec.shape, spec.dtype) for spec in specs] == [
        (name, factor.shape, factor.dtype) for name, factor in folded.tensors.items()
    ]


SCALARS = st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from([0.5, 8.0, "", "q_proj", ".*", "all"])
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from(["q_proj", "("]), SCALARS)


@MANY
@given(changes=st.dictionaries(st.sampled_from(sorted(IMPLEMENTED | REFUSED.keys() | {"foo"})), VALUES, max_size=5))
def test_any_config_is_accounted_for(tmp_path: Path, card: Card, changes: dict[str, Any]) -> None:
    accounted_for(check(write(tmp_path, q_tensors(), **changes), card), card)


MODULES = [f"{LAYERS[0]}.q_proj", f"{LAYERS[0]}.k_proj", f"{LAYERS[0]}.qkv_proj", "model.norm", "lm_head"]
SIZES = [
    (4, 32),
    (32, 4),
    (16, 4),
    (64, 4),
    (4, 64),
    (64, 32),
    (2, 32),
    (32,),
    (16,),
    (64,),
    (),
    (0,),
    (4, 0),
    (1, 2, 3),
]
SHAPES = st.sampled_from(SIZES)
DTYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int32])
NAMES = st.builds(
    lambda prefix, module, part, infix: f"{prefix}{module}.{part.replace('.', infix, 1)}",
    st.sampled_from([PREFIX, PREFIX, PREFIX, "", "module."]),
    st.sampled_from([*MODULES, "model.embed_tokens"]),
    st.sampled_from([str(part) for part in Part]),
    st.sampled_from([".", ".", ".", ".default.", ".other."]),
)
TARGETS = [["q_proj"], ["qkv_proj"], ["embed_tokens", "lm_head"], "all-linear", [], None]
OPTIONS = st.fixed_dictionaries(
    {
        "target_modules": st.sampled_from(TARGETS),
        "use_dora": st.booleans(),
        "lora_bias": st.booleans(),
        "bias": st.sampled_from(["none", "all", "lora_only"]),
        "modules_to_save": st.sampled_from([None, ["norm"], ["embed_tokens"], ["lm_head"]]),
        "trainable_token_indices": st.sampled_from([None, [1, 2], {"embed_tokens": [3, 0]}]),
        "ensure_weight_tying": st.booleans(),
    }
)
TABLES = st.dictionaries(NAMES, st.tuples(SHAPES, DTYPES), max_size=6)


@MANY
@given(table=TABLES, options=OPTIONS, value=st.sampled_from([0, 0.5, np.nan]))
def test_any_tensors_are_accounted_for(
    tmp_path: Path, card: Card, table: dict[str, Any], options: dict[str, Any], value: float
) -> None:
    with np.errstate(invalid="ignore"):
        tensors = {name: np.full(shape, value).astype(dtype) for name, (shape, dtype) in table.items()}
    accounted_for(check(write(tmp_path, tensors, **options), card), card)
