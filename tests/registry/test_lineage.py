"""Lineage: known keys are what they must be, free keys are kept, and nothing is unbounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import canonical
from registry.errors import FormatError
from registry.lineage import KEYS, MAX_BYTES, check, flat, merged, missing, pair

WHOLE = {
    "run": "https://runs.example/17",
    "code": "4a1b2c3",
    "data": ["two lines", {"name": "tales", "digest": f"sha256:{'0' * 64}", "rows": 12}, {"name": "more"}],
    "base": {"repository": "HuggingFaceTB/SmolLM2-135M-Instruct", "revision": "12fd25f"},
    "licence": "apache-2.0",
    "figures": {"eval_loss": 1.25, "steps": 40},
    "owner": "crew",
    "mlflow.id": [1, None, {"a": False}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
LINEAGES = st.dictionaries(st.sampled_from([*KEYS, "free", "a.b", ""]), JSON, max_size=4)


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else 1


def test_a_whole_lineage_is_accepted_and_none_is_too() -> None:
    check(WHOLE)
    check({})
    check({"data": "two lines", "base": "a fork"})
    check({"data": {"tales": f"sha256:{'0' * 64}"}})


@pytest.mark.parametrize(
    ("lineage", "message"),
    [
        ({"run": 17}, "'run' must be a text"),
        ({"owner": ["ann"]}, "'owner' must be a text"),
        ({"data": [3]}, "'data' must be a text, a list of datasets"),
        ({"data": [{"name": "x", "digest": "latest"}]}, "'data' must be"),
        ({"base": {"revision": 3}}, "'base' must be a text, or an object of texts"),
        ({"figures": {"loss": "1.2"}}, "'figures' must be an object of finite numbers"),
        ({"figures": {"loss": float("nan")}}, "not JSON compliant"),
        ({"figures": {"loss": True}}, "'figures' must be"),
        ({"free": "x" * MAX_BYTES}, f"bytes, at most {MAX_BYTES} are kept"),
        ({"x" * 129: 1}, "a key has 1 to 128 characters, not 129"),
        ({"a": {"": 1}}, "a key has 1 to 128 characters, not 0"),
        ({"a": "\ud800"}, "a text is not UTF-8"),
        (nested(9), "objects stand more than 8 deep"),
        ({"a": [[[[[[[[1]]]]]]]]}, "objects stand more than 8 deep"),
    ],
)
def test_what_cannot_be_kept_is_named(lineage: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        check(lineage)
    assert message in caught.value.message
    assert caught.value.message.startswith("lineage: ")


@given(LINEAGES)
def test_any_json_is_a_lineage_or_a_format_error(lineage: dict[str, Any]) -> None:
    try:
        check(lineage)
    except FormatError:
        return
    assert len(canonical.dumps(lineage)) <= MAX_BYTES
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in flat(lineage))


def test_later_parts_win_key_by_key() -> None:
    pinned = {"owner": "ann", "base": {"repository": "a", "revision": "1"}, "figures": {"loss": 2}}
    told = {"base": {"revision": "2"}, "figures": {"acc": 1}, "owner": {"team": "x"}}
    assert merged(pinned, told) == {
        "owner": {"team": "x"},
        "base": {"repository": "a", "revision": "2"},
        "figures": {"loss": 2, "acc": 1},
    }
    assert pinned["base"] == {"repository": "a", "revision": "1"}


@given(LINEAGES, LINEAGES, LINEAGES)
def test_merging_is_associative_and_nothing_is_its_unit(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    assert merged(merged(first, second), third) == merged(first, second, third)
    assert merged(first) == merged({}, first) == merged(first, {}) == merged(first, first) == first


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("owner=ann", {"owner": "ann"}),
        ("owner=", {"owner": ""}),
        ("run=https://x/?a=1", {"run": "https://x/?a=1"}),
        ("base.revision=4a1b", {"base": {"revision": "4a1b"}}),
        ("figures.loss=1.25e-1", {"figures": {"loss": 0.125}}),
        ("a.b.c=1", {"a": {"b": {"c": "1"}}}),
    ],
)
def test_a_pair_is_a_key_and_a_text_or_a_figure(text: str, found: dict[str, Any]) -> None:
    assert pair(text) == found


@pytest.mark.parametrize("text", ["=x", ".a=x", "a..b=x", "figures.loss=low", "figures.loss=nan", "figures.loss=0x1"])
def test_a_pair_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        pair(text)


def test_required_keys_are_missing_when_they_are_absent_or_empty() -> None:
    required = ("owner", "base.revision", "mlflow.id", "licence", "figures")
    assert missing(WHOLE, required) == ()
    assert missing({}, required) == required
    assert missing({"owner": "", "base": {"repository": "x"}, "licence": None, "figures": {}}, required) == required
    assert missing({"owner": "ann", "base": "fork", "mlflow": {"id": 0}}, required) == (
        "base.revision",
        "licence",
        "figures",
    )


def test_people_read_every_value_beside_its_key() -> None:
    shown = dict(flat(WHOLE))
    assert shown["base.revision"] == "12fd25f"
    assert shown["figures.eval_loss"] == "1.25"
    assert shown["data"] == f"two lines, tales sha256:{'0' * 64} 12, more"
    assert shown["mlflow.id"] == "1, null, false"
