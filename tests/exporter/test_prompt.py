from __future__ import annotations

from collections.abc import Sequence

import pytest

from exporter.prompt import Template, TemplateRefusedError, prompt_of, read_prompt
from registry.prompt import Affix, Message, Prompt

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
    "<|start|>{{ message['role'] }}<|end|>\n\n{{ message['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|end|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<turn>' + role + '\n' + message['content'] | trim + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
PHI3 = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
KNOWN = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "mistral": MISTRAL, "phi3": PHI3}
SYSTEMLESS = {"gemma", "mistral"}


def template(text: str) -> Template:
    return Template(text, {"bos_token": "<s>", "eos_token": "</s>"})


def read(text: str) -> Prompt | None:
    return read_prompt(template(text), lambda words: [len(words)], stop_token_ids=[7])


def talk(*turns: str) -> Sequence[Message]:
    return [Message(("user", "assistant")[index % 2], turn) for index, turn in enumerate(turns)]


@pytest.mark.parametrize("name", KNOWN)
def test_the_document_renders_conversations_exactly_as_the_template_does(name: str) -> None:
    prompt = read(KNOWN[name])
    assert prompt is not None
    for messages in (talk("hi"), talk("a", "b", "c"), talk(" spaced ", "x\n", " y", "z", "{{ 7 * 7 }}")):
        assert prompt.render(messages) == template(KNOWN[name]).render(messages, generation=True)


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - SYSTEMLESS))
def test_a_system_message_stands_where_the_template_puts_it(name: str) -> None:
    prompt = read(KNOWN[name])
    assert prompt is not None
    messages = [Message("system", "Be brief."), *talk("hi", "yes", "no")]
    assert prompt.render(messages) == template(KNOWN[name]).render(messages, generation=True)


@pytest.mark.parametrize("name", sorted(SYSTEMLESS))
def test_a_template_without_a_system_role_gives_a_document_without_one(name: str) -> None:
    prompt = read(KNOWN[name])
    assert prompt is not None
    assert "system" not in prompt.roles


def test_the_affixes_of_chatml_are_what_a_reader_would_write() -> None:
    prompt = read(CHATML)
    assert prompt is not None
    assert prompt.roles["user"] == Affix("<|im_start|>user\n", "<|im_end|>\n")
    assert prompt.generation == "<|im_start|>assistant\n"
    assert prompt.system == "Be kind."
    assert prompt.stop_token_ids == (7,)


def test_the_vectors_are_the_templates_own_answers() -> None:
    prompt = read(LLAMA3)
    assert prompt is not None
    assert len(prompt.vectors) == 2
    for vector in prompt.vectors:
        assert vector.text == template(LLAMA3).render(vector.messages, generation=True)
        assert vector.token_ids == (len(vector.text),)


@pytest.mark.parametrize(
    "text",
    [
        "{% for message in messages %}{{ loop.index }}: {{ message['content'] }}\n{% endfor %}",
        "{{ messages | length }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
        "{% for message in messages %}{{ message['content'] | upper }}{% endfor %}",
        "{{ messages[-1]['content'] }}",
        "{{ 1 / 0 }}",
        "constant",
        "{% for %}",
    ],
)
def test_what_affixes_cannot_say_gives_no_document(text: str) -> None:
    assert read(text) is None


def test_a_template_cannot_reach_out_of_its_sandbox() -> None:
    assert read("{{ ''.__class__.__mro__[1].__subclasses__() }}") is None


def test_without_a_chat_template_or_a_tokenizer_there_is_no_document() -> None:
    assert prompt_of({}) is None
    assert prompt_of({"tokenizer_config.json": b'{"chat_template": "x"}'}) is None


HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"
    "{% endfor %}{{ messages[0]['content'] }}",
    "memory": "{{ 'x' * 10 ** 11 }}",
    "width": "{{ 'x'.ljust(10 ** 11) }}",
    "text": "{{ 'x' * 2 ** 21 }}{{ messages[0]['content'] }}",
    "depth": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "length": "{# " + "x" * (1 << 18) + " #}{{ messages[0]['content'] }}",
    "one talk": "{% if messages | length == 3 %}{{ 9 ** (9 ** 9) }}{% endif %}{{ messages[0]['content'] }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_ended_and_gives_no_document(kind: str) -> None:
    assert read(HOSTILE[kind]) is None


def test_what_a_template_said_before_it_was_ended_is_its_answer_to_that_alone() -> None:
    rude = template("{% if messages | length == 2 %}{{ 'x' * 10 ** 11 }}{% endif %}{{ messages[0]['content'] }}")
    assert rude.render(talk("a"), generation=True) == "a"
    with pytest.raises(TemplateRefusedError):
        rude.render(talk("a", "b"), generation=True)
