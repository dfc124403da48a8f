"""Probes: the same ones every time, whatever the vocabulary, and a user's within bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.probes import MAX_BYTES, Vocabulary, built_in, read_probes
from exporter.structure import ModuleStructure, Structure
from registry.errors import InputError
from registry.prompt import Affix, Prompt

LORA = Structure({"q_proj": ModuleStructure(lora=4)})


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@pytest.mark.parametrize(("size", "context"), [(1, 2), (2, 1), (64, 8), (49152, 2048)])
def test_built_in_probes_fit_any_vocabulary_and_context_and_never_change(size: int, context: int) -> None:
    probes = built_in(Vocabulary(size), LORA, context)
    assert probes == built_in(Vocabulary(size), LORA, context)
    assert all(1 <= len(probe.tokens) <= max(1, context // 2) for probe in probes)
    assert all(0 <= token < size for probe in probes for token in probe.tokens)
    assert len(probes) == 4


def test_further_rounds_ask_something_else() -> None:
    rounds = [built_in(Vocabulary(4096), LORA, 64, number) for number in range(3)]
    assert len({probe.tokens for probes in rounds for probe in probes}) == 12


def test_trained_rows_and_texts_are_asked_too() -> None:
    inside = ModuleStructure(rows=(3, 1000))  # of a linear that has more outputs than there are tokens
    structure = Structure({"embed": ModuleStructure(rows=(3, 9, 60)), "up_proj": inside})
    chat = Prompt({"user": Affix("<", ">")}, "!")
    origins = {probe.origin: probe.prompt for probe in built_in(Vocabulary(256, letters, chat), structure, 2048)}
    assert origins["built in: trained rows of embed"] == (3, 9, 60)
    assert not any("up_proj" in origin for origin in origins)
    assert origins["built in: The answer is"] == tuple(letters("<The answer is>!"))


def test_a_prompt_is_wrapped_as_a_device_would_and_a_completion_is_not(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi", "completion": "yo"}\n')
    (probe,) = read_probes(tmp_path / "p.jsonl", Vocabulary(256, letters, Prompt({"user": Affix("<", ">")}, "!")), 64)
    assert (probe.prompt, probe.completion) == (tuple(letters("<hi>!")), tuple(letters("yo")))


def test_without_a_tokenizer_a_users_prompts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi"}')
    with pytest.raises(InputError, match=r"the base has no tokenizer\.json"):
        read_probes(tmp_path / "p.jsonl", Vocabulary(256), 64)


def test_more_than_a_proof_can_take_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f"{json.dumps({'prompt': 'x' * 1000})}\n" * 17)
    with pytest.raises(InputError, match="17000 tokens, at most 16384 are compared"):
        read_probes(file, Vocabulary(256, letters), 2048)
    file.write_text('{"prompt": "x"}\n' * 257)
    with pytest.raises(InputError, match="257 probes, expected 1 to 256"):
        read_probes(file, Vocabulary(256, letters), 64)
    file.write_text("x" * (MAX_BYTES + 1))
    with pytest.raises(InputError, match="more than 4194304 bytes"):
        read_probes(file, Vocabulary(256, letters), 64)


@pytest.mark.parametrize("content", ["", "\n \n", '[{"prompt": "x"}]', '{"prompt": 1}', "{\n", '{"prompt": "x"'])
def test_whoever_gives_no_probes_is_told_what_they_look_like(content: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(InputError) as caught:
        read_probes(tmp_path / "p.jsonl", Vocabulary(256, letters), 64)
    assert caught.value.hint == 'one {"prompt": …, "completion": …} a line'


def test_a_token_that_the_model_does_not_embed_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "az"}')
    with pytest.raises(InputError, match="the tokenizer writes token 122, the model embeds 100"):
        read_probes(tmp_path / "p.jsonl", Vocabulary(100, letters), 64)
