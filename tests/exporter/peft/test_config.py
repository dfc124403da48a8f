from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig

from exporter.peft.config import IMPLEMENTED, INERT, REFUSED, Config, read_config
from exporter.peft.findings import Findings
from exporter.peft.patterns import check_patterns, key_expression, resolve
from tests.exporter.adapters import Q


def read(**changes: Any) -> tuple[Config | None, list[str]]:
    findings = Findings()
    config = read_config(json.dumps({**Q, **changes}).encode(), findings)
    return config, [finding.message for finding in findings]


def test_every_field_of_pefts_config_is_classified_exactly_once() -> None:
    fields = {field.name for field in dataclasses.fields(LoraConfig)}
    assert fields - INERT - IMPLEMENTED - REFUSED.keys() == set()
    assert not INERT & IMPLEMENTED
    assert not (INERT | IMPLEMENTED) & REFUSED.keys()


def test_a_config_that_peft_saves_has_no_findings(tmp_path: Path) -> None:
    LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"]).save_pretrained(tmp_path)
    findings = Findings()
    config = read_config((tmp_path / "adapter_config.json").read_bytes(), findings)
    assert list(findings) == []
    assert (config.rank, config.alpha, config.targets) == (4, 8.0, ("q_proj",))


def test_missing_fields_have_pefts_defaults() -> None:
    config, found = read()
    saved = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"])
    assert found == []
    assert (config.rslora, config.dora, config.lora_bias) == (saved.use_rslora, saved.use_dora, saved.lora_bias)
    assert (config.bias, config.fan_in_fan_out) == (saved.bias, saved.fan_in_fan_out)
    assert (config.layers, config.rank_pattern, config.modules_to_save) == (None, {}, ())


@pytest.mark.parametrize("name", sorted(INERT - {"base_model_name_or_path"}))
@pytest.mark.parametrize("value", [None, "x", 3, {"a": [1]}, False])
def test_an_inert_field_changes_nothing(name: str, value: Any) -> None:
    config, found = read(**{name: value})
    assert found == []
    assert dataclasses.replace(config, raw={}) == dataclasses.replace(read()[0], raw={})


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_field_is_named_when_it_is_set(name: str) -> None:
    assert read(**{name: None})[1] == []
    (message,) = read(**{name: {"a": 1}})[1]
    assert repr(name) in message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "expected an object, got list"),
        (b'\xef\xbb\xbf{"r": 4}', "byte order mark"),
        (b'{"r": 4, "r": 8}', "the key 'r' stands twice"),
        (b'{"r": 4, "lora_alpha": NaN}', "NaN is not JSON"),
        (b'{"r": 4, "lora_alpha": Infinity}', "Infinity is not JSON"),
        (b'{"r": 4, "lora_alpha": 1e999}', "1e999 overflows a double"),
        (b'{"r": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_json_is_read_strictly(data: bytes, message: str) -> None:
    findings = Findings()
    assert read_config(data, findings) is None
    (finding,) = findings
    assert message in finding.message


@given(st.binary(max_size=200))
def test_any_bytes_give_a_config_or_findings(data: bytes) -> None:
    findings = Findings()
    config = read_config(data, findings)
    assert (config is not None) or findings.refused


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(IMPLEMENTED | REFUSED.keys() | {"foo"})), VALUES, max_size=6))
def test_any_values_give_a_usable_config_or_an_error(changes: dict[str, Any]) -> None:
    config, found = read(**changes)
    if not found:
        assert config is not None
        assert config.rank >= 1
        assert isinstance(config.alpha, float)


def test_an_empty_layers_pattern_is_none_as_peft_takes_it() -> None:
    for nothing in ("", [], None):
        assert read(layers_pattern=nothing, layers_to_transform=[0])[0].layers_pattern == ()
    assert read(layers_pattern="h", layers_to_transform=[0])[0].layers_pattern == ("h",)


def test_trainable_tokens_are_a_list_or_a_table() -> None:
    assert read(trainable_token_indices=[3, 1])[0].token_indices == {None: (3, 1)}
    assert read(trainable_token_indices={"embed_tokens": [3]})[0].token_indices == {"embed_tokens": (3,)}
    assert read(trainable_token_indices=[])[0].token_indices == {}


@pytest.mark.parametrize(
    ("table", "name", "key"),
    [
        (["q_proj"], "model.layers.0.self_attn.q_proj", "q_proj"),
        (["^q_proj"], "model.layers.0.self_attn.q_proj", None),
        (["^model.*q_proj"], "model.layers.0.self_attn.q_proj", "^model.*q_proj"),
        (["layers.0.self_attn.q_proj"], "model.layers.10.self_attn.q_proj", None),
        (["_proj"], "model.layers.0.self_attn.q_proj", None),
        (["(q|v)_proj", "q_proj"], "a.q_proj", "(q|v)_proj"),
        (["v_proj", ".*"], "a.q_proj", ".*"),
    ],
)
def test_a_pattern_key_means_what_peft_takes_it_for(table: list[str], name: str, key: str | None) -> None:
    from peft.utils.other import get_pattern_key

    assert resolve(table, name) == key
    assert get_pattern_key(table, name) == (key or name)


NAMES = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(30) for name in "qkvo"]
UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?"
    r"(?:k_proj|v_proj|q_proj|out_proj|fc1|fc2|o_proj|gate_proj|up_proj|down_proj).*?)|"
    r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\."
    r"(?:(?:k_proj|v_proj|q_proj|out_proj|fc1|fc2|o_proj|gate_proj|up_proj|down_proj)))"
)


@pytest.mark.parametrize(
    "pattern",
    [
        r".*\.(self_attn|mlp)\.(q|k|v)_proj",
        r"(?!.*visual).*[qv]_proj$",
        r"model\.layers\.(1[0-9]|2\d)\.x",
        r"[)*]+a",
        r"a{3}b?",
        "(?x) .*  # all\n q_proj",
        UNSLOTH,
        "(a+)+b",
    ],
)
def test_an_expression_that_ends_soon_on_these_names_is_read(pattern: str) -> None:
    assert check_patterns([pattern], NAMES) is None
    assert check_patterns(["q_proj", pattern, r"^model\.layers\.\d+\..*"], NAMES) is None


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("(", "not a regular expression"),
        ("(?:(a)", "not a regular expression"),
        ("a" * 20_001, "an expression of 20001 characters"),
        ("(.+)+#", "takes too long"),
        (".?" * 40 + "#", "takes too long"),
        ("(?i)" + "[\0-\U0010ffff]" * 2000, "takes too long"),
    ],
)
def test_an_expression_that_does_not_compile_or_takes_too_long_is_refused(pattern: str, wrong: str) -> None:
    found = check_patterns([pattern], NAMES)
    assert found is not None
    assert wrong in found


def test_a_slow_expression_is_named_among_others_wherever_it_stands() -> None:
    found = check_patterns(["(q|k)_proj", "(.+)+#", "[vo]_proj"], NAMES, key_expression)
    assert found == f"{key_expression('(.+)+#')!r} takes too long to match the names of this base"
    for field in ("target_modules", "exclude_modules"):
        findings = Findings()
        read_config(json.dumps({**Q, field: "(.+)+#"}).encode(), findings, NAMES)
        assert [finding.code for finding in findings] == ["bad-pattern"]


def test_more_expressions_or_names_than_any_base_has_modules_are_refused() -> None:
    assert "5000 expressions" in read(rank_pattern={f"a{number}": 4 for number in range(5000)})[1][0]
    assert "lists 70000 names" in read(target_modules=["a"] * 70_000)[1][0]
    assert "lists 1025 names" in read(modules_to_save=["a"] * 1025)[1][0]


def test_a_message_shows_no_more_of_a_value_than_can_be_read() -> None:
    assert len(read(r="x" * 100_000)[1][0]) < 1000
