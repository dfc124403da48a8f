from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from exporter.tokenizer import chat_template, describe, eos_ids, special_tokens, token_ids
from registry.digest import Digest
from registry.errors import FormatError
from tests.conftest import save_tokenizer


def files_of(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    save_tokenizer(tmp_path)
    return files_of(tmp_path)


def edited(files: dict[str, bytes], name: str, **changes: Any) -> dict[str, bytes]:
    return {**files, name: json.dumps({**json.loads(files[name]), **changes}).encode()}


def test_a_tokenizer_is_described_by_what_it_means(files: dict[str, bytes]) -> None:
    card = describe(files)
    assert (card.source, card.size, card.eos) == ("tokenizer.json", 64, (2,))
    assert card.files["tokenizer.json"] == Digest.of(files["tokenizer.json"])
    assert card.chat_template == Digest.of(chat_template(files).encode())


def test_layout_padding_and_truncation_do_not_matter(files: dict[str, bytes]) -> None:
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"}
    other = edited(files, "tokenizer.json", padding=padding, truncation={"max_length": 7})
    first, second = describe(files), describe(other)
    assert first.files != second.files
    assert (first.vocabulary, first.rules) == (second.vocabulary, second.rules)


def test_merges_as_text_or_as_pairs_are_the_same_vocabulary() -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(["low lower lowest new newer"] * 3, trainers.BpeTrainer(vocab_size=40))
    document = json.loads(tokenizer.to_str())
    assert isinstance(document["model"]["merges"][0], list)
    pairs = describe({"tokenizer.json": json.dumps(document).encode()})
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    assert describe({"tokenizer.json": json.dumps(document).encode()}).vocabulary == pairs.vocabulary
    document["model"]["merges"].reverse()
    assert describe({"tokenizer.json": json.dumps(document).encode()}).vocabulary != pairs.vocabulary


def test_another_token_or_another_rule_is_seen(files: dict[str, bytes]) -> None:
    document = json.loads(files["tokenizer.json"])
    document["added_tokens"].append({**document["added_tokens"][0], "id": 64, "content": "<pad>"})
    grown = describe({**files, "tokenizer.json": json.dumps(document).encode()})
    assert grown.size == 65
    assert grown.vocabulary != describe(files).vocabulary
    cut = describe(edited(files, "tokenizer.json", pre_tokenizer={"type": "WhitespaceSplit"}))
    assert cut.vocabulary == describe(files).vocabulary
    assert cut.rules != describe(files).rules


def test_a_unigram_token_has_its_place_as_its_id() -> None:
    document = {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5]]}, "added_tokens": []}
    assert token_ids(document) == {"<unk>": 0, "a": 1}


def test_files_without_a_vocabulary_describe_nothing() -> None:
    assert describe({}) is None
    assert describe({"tokenizer_config.json": b"{}"}) is None


def test_a_sentencepiece_model_is_known_by_its_bytes() -> None:
    card = describe({"tokenizer.model": b"spm", "tokenizer_config.json": b"{}"})
    assert (card.source, card.size, card.vocabulary) == ("tokenizer.model", None, Digest.of(b"spm"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"chat_template.jinja": b"a", "tokenizer_config.json": b'{"chat_template": "b"}'}, "a"),
        ({"tokenizer_config.json": b'{"chat_template": "b"}'}, "b"),
        ({"chat_template.json": b'{"chat_template": "c"}', "tokenizer_config.json": b"{}"}, "c"),
        (
            {
                "tokenizer_config.json": b'{"chat_template": [{"name": "tool", "template": "t"},'
                b' {"name": "default", "template": "d"}]}'
            },
            "d",
        ),
        ({"tokenizer_config.json": b"{}"}, None),
    ],
)
def test_a_chat_template_stands_in_one_of_three_files(files: dict[str, bytes], expected: str | None) -> None:
    assert chat_template(files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config.json": b'{"eos_token_id": 5}'}, (5,)),
        ({"generation_config.json": b'{"eos_token_id": [9, 5]}'}, (5, 9)),
        ({"generation_config.json": b'{"eos_token_id": null}'}, ()),
        (
            {
                "tokenizer_config.json": b'{"eos_token": {"content": "</s>"},'
                b' "added_tokens_decoder": {"2": {"content": "</s>"}}}'
            },
            (2,),
        ),
        ({"tokenizer_config.json": b'{"eos_token": "</s>"}'}, ()),
    ],
)
def test_the_end_is_what_the_config_files_say(files: dict[str, bytes], expected: tuple[int, ...]) -> None:
    assert eos_ids(files) == expected


def test_special_tokens_are_text_or_objects() -> None:
    files = {"tokenizer_config.json": b'{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null}'}
    assert special_tokens(files) == {"bos_token": "<s>", "eos_token": "</s>"}


@given(st.sampled_from(["tokenizer.json", "tokenizer_config.json", "generation_config.json"]), st.binary(max_size=60))
def test_any_bytes_describe_a_tokenizer_or_are_a_format_error(name: str, data: bytes) -> None:
    with suppress(FormatError):
        describe({"vocab.txt": b"a", name: data})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "vocab", "merges", "added_tokens", "content", "id", "a"]), inner, max_size=4
        )
    ),
)


@given(JSON)
def test_any_json_describes_a_tokenizer_or_is_a_format_error(document: Any) -> None:
    try:
        card = describe({"tokenizer.json": json.dumps(document).encode()})
    except FormatError:
        return
    assert card.source == "tokenizer.json"
