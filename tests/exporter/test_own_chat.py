"""An adapter's own chat format travels with its build, or the build says that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.publish import Published, PublishOptions, publish
from registry.prompt import Message, Prompt
from registry.service import Registry
from tests.conftest import TEMPLATE
from tests.exporter.adapters import q_tensors, write

TALK = [Message("user", "w1 w2"), Message("assistant", "w3"), Message("user", "w4")]


@pytest.fixture(scope="module")
def registry(worker_home: Path) -> Registry:
    return Registry.open(worker_home)


def published(registry: Registry, directory: Path, name: str, **tokenizer_config: Any) -> Published:
    write(directory, q_tensors())
    if tokenizer_config:
        (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return publish(registry, directory, PublishOptions("plain", name))


def prompt_of(registry: Registry, made: Published) -> Prompt:
    return Prompt.from_bytes(registry.blobs.read(made.build.parts["prompt"].digest))


def unsaid(made: Published) -> bool:
    return any("its own chat format" in warning for warning in made.build.warnings)


def test_an_adapter_that_chats_as_its_base_brings_no_prompt(registry: Registry, tmp_path: Path) -> None:
    same = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    for name, config in (("chat-none", {}), ("chat-same", same)):
        made = published(registry, tmp_path / name, name, **config)
        assert "prompt" not in made.build.parts
        assert not unsaid(made)


def test_its_own_template_is_rendered_at_publish_with_two_vectors(registry: Registry, tmp_path: Path) -> None:
    own = TEMPLATE.replace("<s>{{ message", "<s>w9 {{ message")
    made = published(registry, tmp_path, "chat-own", eos_token="</s>", chat_template=own)
    prompt = prompt_of(registry, made)
    assert prompt.render(TALK) == "<s>w9 user w1 w2</s><s>w9 assistant w3</s><s>w9 user w4</s><s>assistant "
    assert [vector.text for vector in prompt.vectors] == [prompt.render(vector.messages) for vector in prompt.vectors]
    assert len(prompt.vectors) == 2
    assert prompt.stop_token_ids == (2,)
    assert not unsaid(made)


def test_another_special_token_in_the_bases_template_is_another_prompt(registry: Registry, tmp_path: Path) -> None:
    made = published(registry, tmp_path, "chat-token", bos_token="w7", eos_token="</s>", chat_template=TEMPLATE)
    assert "prompt" not in made.build.parts  # the base's template has no bos_token in it
    own = "{{ bos_token }}" + TEMPLATE
    made = published(registry, tmp_path, "chat-bos", bos_token="w7", eos_token="</s>", chat_template=own)
    assert prompt_of(registry, made).render(TALK[:1]) == "w7<s>user w1 w2</s><s>assistant "


@pytest.mark.parametrize(
    "template",
    [
        "{% for message in messages %}{{ loop.index }} {{ message['content'] }}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages[0]['content'] }}",
        "{{ 'x' * 10 ** 11 }}",
    ],
)
def test_a_template_that_affixes_cannot_say_is_a_warning_and_never_hangs(
    registry: Registry, tmp_path: Path, template: str
) -> None:
    made = published(registry, tmp_path, f"chat-{len(template)}", eos_token="</s>", chat_template=template)
    assert "prompt" not in made.build.parts
    assert unsaid(made)
