"""`adapter check` says what publish will say: what folding refuses, and which template it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.card import Card, KnownStructure
from exporter.checking import Whole, check_whole
from exporter.peft.gate import check
from exporter.structure import ModuleStructure, Structure
from tests.exporter.adapters import LAYERS, PREFIX, ModelRows, card_of, llama, q_tensors, write

MODEL = llama()
Q = Structure({f"{layer}.q_proj": ModuleStructure(lora=4) for layer in LAYERS})
CARD = replace(card_of(MODEL), structures=(KnownStructure(Q.digest, Q.describe()),))


def checked(
    directory: Path, tensors: dict[str, Any], card: Card = CARD, *, blind: bool = False, **config: Any
) -> Whole:
    found = check(write(directory, tensors, **config), card)
    return check_whole(found, card, None if blind else ModelRows(MODEL))


def test_an_adapter_of_a_known_structure_has_its_template(tmp_path: Path) -> None:
    answer = checked(tmp_path, q_tensors()).to_json(CARD)
    assert (answer["accepted"], answer["template"], answer["spec"]) == (True, True, "r4:q_proj")
    assert answer["structure"] == "rank 4 on q_proj (2 modules)"


def test_equal_factors_are_another_structure_without_a_template(tmp_path: Path) -> None:
    tensors = {name: np.zeros_like(each) if "lora_B" in name else each for name, each in q_tensors().items()}
    answer = checked(tmp_path, tensors).to_json(CARD)
    assert (answer["accepted"], answer["template"], answer["spec"]) == (True, False, None)
    assert answer["structure"] == "rank 4 on q_proj (2 modules); 1 group of equal factors"


def test_what_takes_the_foundations_weights_stays_open_without_them(tmp_path: Path) -> None:
    magnitudes = {f"{PREFIX}{layer}.q_proj.lora_magnitude_vector": np.ones(32, np.float32) for layer in LAYERS}
    tensors = {**q_tensors(), **magnitudes}
    answer = checked(tmp_path, tensors, blind=True, use_dora=True).to_json(CARD)
    assert (answer["accepted"], answer["template"], answer["spec"]) == (True, None, "r4+dora:q_proj")
    assert checked(tmp_path, tensors, use_dora=True).to_json(CARD)["template"] is False


def test_what_folding_refuses_check_refuses_too(tmp_path: Path) -> None:
    blind = replace(CARD, tensors={})  # no digest decides whether the copy is the base's
    head = {**q_tensors(), f"{PREFIX}lm_head.base_layer.weight": np.zeros((64, 32), np.float32)}
    assert checked(tmp_path, head, blind, blind=True).to_json(blind)["accepted"]
    answer = checked(tmp_path, head, blind).to_json(blind)
    assert (answer["accepted"], answer["structure"], answer["template"], answer["spec"]) == (False, None, None, None)
    assert [(each["level"], each["code"]) for each in answer["findings"]][-1] == ("error", "other-base")


def test_what_the_gate_refuses_is_not_folded(tmp_path: Path) -> None:
    whole = checked(tmp_path, q_tensors(), r=8)
    assert (whole.structure, whole.exact, whole.checked.adapter) == (None, False, None)
