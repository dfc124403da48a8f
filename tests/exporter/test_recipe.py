from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.recipe import (
    NO_SHARED_FOUNDATION,
    Quantization,
    Recipe,
    check_backend,
    check_dtype,
    check_quantization,
    recipe_of,
)
from registry import canonical
from registry.errors import FormatError, InputError

RECIPES = {
    "fp32": recipe_of("F32", None),
    "fp16": recipe_of("F16", None),
    "g32": recipe_of("F32", Quantization()),
    "g128-e8": recipe_of("F32", Quantization(128, 8)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_read_from_its_document_is_the_same(name: str) -> None:
    document = json.loads(canonical.dumps(RECIPES[name].to_json()))
    assert Recipe.from_json(document) == RECIPES[name]
    assert Recipe.from_json({"name": "n", "recipe": document, "tensors": []}) == RECIPES[name]
    assert Recipe.like(document) == RECIPES[name]


def test_a_recipe_of_a_module_names_its_factory() -> None:
    document = {**RECIPES["fp32"].to_json(), "module": "encoders.bert:factory", "graph": 99}
    assert Recipe.from_json(document).module == "encoders.bert:factory"
    assert Recipe.from_json(document).graph == RECIPES["fp32"].graph


def test_a_recipe_of_other_libraries_is_made_with_the_ones_here() -> None:
    document = {**RECIPES["g32"].to_json(), "libraries": {"torch": "1.0"}, "graph": 99}
    assert Recipe.from_json(document) == RECIPES["g32"]


def test_recipes_differ_in_their_documents_and_factors_beside_quantized_weights_are_fp32() -> None:
    assert len({canonical.dumps(recipe.to_json()) for recipe in RECIPES.values()}) == 4
    assert [recipe.factor_dtype for recipe in RECIPES.values()] == ["F32", "F16", "F32", "F32"]
    assert RECIPES["g128-e8"].quantized == Quantization(128, 8)
    assert RECIPES["fp16"].quantized is None


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"dtype": "BF16"}, FormatError, "'BF16' is not one of F32, F16"),
        ({"dtype": "F16"}, InputError, "a quantized foundation computes in fp32"),
        ({"backend": "qnn"}, InputError, "no shared foundation on qnn"),
        ({"schema": 2}, FormatError, "schema 2"),
        ({"quantization": {"mode": "4w", "group_size": 32}}, FormatError, "'4w' is not one of 8da4w"),
        ({"quantization": {"mode": "8da4w", "group_size": 48}}, FormatError, "groups of 48"),
        (
            {"quantization": {"mode": "8da4w", "group_size": 32, "embedding_bits": 2}},
            FormatError,
            "embeddings of 2 bits",
        ),
        ({"quantization": []}, FormatError, "expected an object"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Recipe.from_json({**RECIPES["g32"].to_json(), **change})


@pytest.mark.parametrize("document", [None, [], "recipe", {}, {"recipe": None}])
def test_what_is_no_recipe_is_a_format_error(document: Any) -> None:
    with pytest.raises(FormatError):
        Recipe.from_json(document)


def test_options_mean_a_quantization_or_are_refused_with_the_way_out() -> None:
    assert check_quantization(None, None, None) is None
    assert check_quantization("8da4w", None, None) == Quantization(32, None)
    assert check_quantization("8da4w", 128, 4) == Quantization(128, 4)
    for options, words in [
        ((None, 32, None), "--group-size without --qmode quantizes nothing"),
        ((None, None, 4), "--embedding-bits without --qmode"),
        (("int8", None, None), "cannot be quantized as 'int8'"),
        (("8da4w", 48, None), "--group-size cannot be 48"),
        (("8da4w", 0, None), "--group-size cannot be 0"),
        (("8da4w", None, 2), "--embedding-bits cannot be 2"),
    ]:
        with pytest.raises(InputError, match=words):
            check_quantization(*options)


@pytest.mark.parametrize("name", NO_SHARED_FOUNDATION)
def test_a_backend_that_cannot_share_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(InputError, match=f"no shared foundation on {name}") as caught:
        check_backend(name)
    assert NO_SHARED_FOUNDATION[name] in str(caught.value.hint)


def test_bf16_weights_are_refused_with_the_reason() -> None:
    assert (check_dtype("fp32"), check_dtype("fp16")) == ("F32", "F16")
    with pytest.raises(InputError) as caught:
        check_dtype("bf16")
    assert "XNNPACK delegates no bf16 linear" in str(caught.value.hint)
