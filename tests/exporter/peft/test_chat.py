from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.card import Card
from exporter.peft.gate import check
from exporter.tokenizer import describe
from tests.conftest import save_tokenizer
from tests.exporter.adapters import card_of, llama, messages, q_tensors, write


@pytest.fixture
def card(tmp_path: Path) -> Card:
    base = tmp_path / "base"
    base.mkdir()
    save_tokenizer(base)
    return replace(card_of(llama()), tokenizer=describe({file.name: file.read_bytes() for file in base.iterdir()}))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = write(tmp_path / "adapter", q_tensors())
    save_tokenizer(directory)
    return directory


def edit(directory: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads((directory / name).read_text())
    change(document)
    (directory / name).write_text(json.dumps(document))


def test_the_foundations_own_tokenizer_is_fine(directory: Path, card: Card) -> None:
    checked = check(directory, card, base_fingerprint=card.base)
    assert checked.findings == ()
    assert checked.accept().chat.template is None
    assert checked.accept().chat.stop_token_ids == ()


def test_no_tokenizer_beside_the_adapter_is_fine(tmp_path: Path, card: Card) -> None:
    assert check(write(tmp_path / "bare", q_tensors()), card, base_fingerprint=card.base).findings == ()


def test_a_base_without_a_tokenizer_is_noted(directory: Path, card: Card) -> None:
    (note,) = messages(check(directory, replace(card, tokenizer=None)), "note")
    assert note.startswith("no tokenizer is pinned")


def test_the_same_tokenizer_saved_otherwise_is_fine(directory: Path, card: Card) -> None:
    edit(directory, "tokenizer.json", lambda document: document.update(truncation={"max_length": 5}))
    assert check(directory, card, base_fingerprint=card.base).findings == ()


def test_another_vocabulary_is_refused_with_both_sizes(directory: Path, card: Card) -> None:
    edit(directory, "tokenizer.json", lambda document: document["model"]["vocab"].update(extra=64))
    assert messages(check(directory, card)) == ["tokenizer.json: another vocabulary: 65 tokens, the base has 64"]


def test_swapped_tokens_are_another_vocabulary(directory: Path, card: Card) -> None:
    edit(directory, "tokenizer.json", lambda document: document["model"]["vocab"].update(w0=7, w1=6))
    assert messages(check(directory, card)) == ["tokenizer.json: another vocabulary: 64 tokens, the base has 64"]


def test_text_that_is_cut_otherwise_is_a_warning(directory: Path, card: Card) -> None:
    edit(directory, "tokenizer.json", lambda document: document.update(pre_tokenizer={"type": "WhitespaceSplit"}))
    (warning,) = messages(check(directory, card, base_fingerprint=card.base), "warning")
    assert "the same vocabulary, but text is cut otherwise" in warning


def test_a_vocabulary_in_another_form_cannot_be_compared(directory: Path, card: Card) -> None:
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.model").write_bytes(b"spm")
    (warning, *_) = messages(check(directory, card, base_fingerprint=card.base), "warning")
    assert warning == "the tokenizer (tokenizer.model) cannot be compared with the base's (tokenizer.json)"


def test_another_chat_template_travels_with_the_build(directory: Path, card: Card) -> None:
    (directory / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    checked = check(directory, card, base_fingerprint=card.base)
    assert messages(checked, "note") == ["another chat template than the base's: the build carries it"]
    assert checked.accept().chat.template == "{{ messages[0]['content'] }}!"
    assert checked.accept().chat.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_another_end_of_sequence_travels_with_the_build(directory: Path, card: Card) -> None:
    edit(directory, "tokenizer_config.json", lambda document: document.update(eos_token="w3"))
    checked = check(directory, card, base_fingerprint=card.base)
    assert messages(checked, "note") == [
        "another end of sequence than the base's: the build carries stop_token_ids [9]"
    ]
    assert checked.accept().chat.stop_token_ids == (9,)


@pytest.mark.parametrize(
    ("name", "content", "stops"),
    [
        ("generation_config.json", {"eos_token_id": [9, 64]}, (2, 9)),
        ("generation_config.json", {"eos_token_id": 64}, ()),
        ("added_tokens.json", {"<new>": 64}, ()),
    ],
)
def test_a_token_beyond_the_vocabulary_is_told_and_ends_nothing(
    directory: Path, card: Card, name: str, content: Any, stops: tuple[int, ...]
) -> None:
    (directory / name).write_text(json.dumps(content))
    checked = check(directory, card, base_fingerprint=card.base)
    told = "token 64 is named beside the adapter, but the base's vocabulary is 64: it cannot occur"
    assert messages(checked, "warning") == [told]
    assert checked.accept().chat.stop_token_ids == stops


def test_an_end_that_only_a_missing_file_knows_is_a_warning(directory: Path, card: Card) -> None:
    (directory / "tokenizer.json").unlink()
    edit(directory, "tokenizer_config.json", lambda document: document.update(eos_token="w3"))
    (warning,) = messages(check(directory, card, base_fingerprint=card.base), "warning")
    assert warning.startswith("the id of the adapter's eos_token is not known")


def test_a_damaged_tokenizer_file_is_refused(directory: Path, card: Card) -> None:
    (directory / "tokenizer_config.json").write_text("{")
    (message,) = messages(check(directory, card))
    assert message.startswith("tokenizer_config.json: not JSON")
