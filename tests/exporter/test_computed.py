"""What of the config files reaches a program, and what of them is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.computed import computed
from registry.errors import InputError


def files(base: Path, generation: object = None, **config: object) -> dict[str, bytes]:
    known = json.loads((base / "config.json").read_text())
    found = {"config.json": json.dumps({**known, **config}).encode()}
    return found if generation is None else {**found, "generation_config.json": json.dumps(generation).encode()}


def test_only_what_a_program_computes_or_answers_counts(tiny_base: Path) -> None:
    plain = computed(files(tiny_base))
    assert computed(files(tiny_base, transformers_version="9", _name_or_path="elsewhere", use_cache=False)) == plain
    assert computed(files(tiny_base, rms_norm_eps=0.5)) != plain
    assert computed(files(tiny_base, {"eos_token_id": [2, 7]})).eos == (2, 7)
    assert computed(files(tiny_base, {"eos_token_id": None})).eos == ()


def test_below_zero_stands_for_no_token(tiny_base: Path) -> None:
    found = computed(files(tiny_base, {"bos_token_id": -1, "eos_token_id": [-1, 2]}))
    assert (found.bos, found.eos) == (None, (2,))


@pytest.mark.parametrize("value", ["x", 1.5, True, [[1]], {"a": 1}, 1 << 63, [2, None]])
def test_what_is_no_token_id_is_refused_by_the_field(value: object, tiny_base: Path) -> None:
    with pytest.raises(InputError, match=r"generation_config\.json: eos_token_id must be a token id or a list"):
        computed(files(tiny_base, {"eos_token_id": value}))
    with pytest.raises(InputError, match=r"config\.json: bos_token_id must be a token id or a list"):
        computed(files(tiny_base, bos_token_id=value))
