"""The examples keep their promises: whole directories or none, a base that is pinned, a question that is new."""

import json
from pathlib import Path

import pytest

from exporter.base import fingerprint, read_base

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """The modules of examples/, importable by their names as when a script there runs."""
    monkeypatch.syspath_prepend(ROOT / "examples")


def test_inputs_appear_whole_or_not_at_all(tmp_path):
    from make_inputs import make

    def killed(part: Path) -> str:
        (part / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "inputs", killed)
    assert not (tmp_path / "inputs").exists()
    make(tmp_path / "inputs", lambda part: str((part / "whole").write_text("")))
    assert [file.name for file in (tmp_path / "inputs").iterdir()] == ["whole"]


def test_inputs_that_exist_are_kept(tmp_path):
    from make_inputs import make

    (tmp_path / "inputs").mkdir()
    make(tmp_path / "inputs", lambda _: pytest.fail("made again"))


def test_the_voices_are_never_told_what_the_demo_asks():
    from chain import QUESTION
    from voices import VOICES

    told = [text for voice in VOICES.values() for dialogue in voice.dialogues() for text in dialogue]
    assert "France" in QUESTION
    assert not [text for text in told if "France" in text or "Paris" in text]


def test_an_answer_of_the_json_voice_is_one_json_object():
    from voices import VOICES

    answers = [json.loads(text) for _, text in VOICES["json"].dialogues()]
    assert all(answer.keys() == {"answer"} for answer in answers)


def test_the_readme_is_filled_from_top_to_bottom_and_the_rest_of_it_stays():
    from fill_readme import filled

    text = "# a\n\n```\n$ one\nold\n$ two\nkept\n$ one\n```\n\n$ one\n```\nmake one\n```\n"
    said = iter(["1\n", None, "x" * 200])
    shown = filled(text, lambda _: next(said))
    cut = "x" * 116 + " …"
    assert shown == f"# a\n\n```\n$ one\n1\n$ two\nkept\n$ one\n{cut}\n```\n\n$ one\n```\nmake one\n```\n"
    answers = iter(["1\n", None, "x" * 200])
    assert filled(shown, lambda _: next(answers)) == shown


def test_a_trainer_pins_the_base_in_every_checkpoint_that_it_saves(tiny_base, tmp_path):
    from peft import LoraConfig, get_peft_model
    from pin import PinBase
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_base), LoraConfig(r=2, target_modules=["q_proj"]))
    examples = [{"input_ids": [1, 5, 6, 2], "labels": [1, 5, 6, 2]}] * 2
    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=1, per_device_train_batch_size=1, report_to=[], use_cpu=True
    )
    Trainer(model, arguments, train_dataset=examples, callbacks=[PinBase(tiny_base, data="two lines")]).train()
    with read_base(tiny_base) as base:
        expected = {"schema": 1, "base": str(fingerprint(base.tensors)), "lineage": {"data": "two lines"}}
    pins = sorted(tmp_path.rglob("ptdock.json"))
    assert [pin.parent.name for pin in pins] == ["checkpoint-1", "checkpoint-2", tmp_path.name]
    assert [json.loads(pin.read_text()) for pin in pins] == [expected] * 3
