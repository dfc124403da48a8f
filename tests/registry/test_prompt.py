"""The prompt document: a chat format that renders without a template engine."""

import json

import pytest

from registry.errors import FormatError, InputError
from registry.prompt import Affix, Message, Prompt, Sampling, Vector

CHATML = Prompt(
    roles={
        "system": Affix("<|im_start|>system\n", "<|im_end|>\n"),
        "user": Affix("<|im_start|>user\n", "<|im_end|>\n"),
        "assistant": Affix("<|im_start|>assistant\n", "<|im_end|>\n"),
    },
    generation="<|im_start|>assistant\n",
    system="Be brief.",
    stop_token_ids=(2,),
    sampling=Sampling(0.7, 0.9, 40),
    vectors=(Vector((Message("user", "Ahoy?"),), "…", (1, 9690)),),
)


def edited(name, value):
    return json.dumps(CHATML.to_json() | {name: value}).encode()


def test_reading_what_was_written_gives_the_same_value():
    plain = Prompt({"user": Affix("", "")}, "")
    assert Prompt.from_bytes(CHATML.to_bytes()) == CHATML
    assert Prompt.from_bytes(plain.to_bytes()) == plain


def test_a_conversation_renders_as_the_chat_template_would():
    assert CHATML.render([Message("user", "Ahoy?")]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAhoy?<|im_end|>\n<|im_start|>assistant\n"
    )
    own = CHATML.render([Message("system", "Talk."), Message("user", "a"), Message("assistant", "b")])
    assert own == (
        "<|im_start|>system\nTalk.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_format_that_trims_strips_each_message_and_opens_with_its_own_text():
    prompt = Prompt({"user": Affix("[", "]")}, ">", begin="<s>", trim=True)
    assert prompt.render([Message("user", " a \n"), Message("user", "b")]) == "<s>[a][b]>"


def test_an_unknown_role_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="no role 'tool'") as caught:
        CHATML.render([Message("tool", "x")])
    assert caught.value.hint == "it has assistant, system, user"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("schema", 2, "schema 2"),
        ("critical", ["images"], "'critical' names 'images'"),
        ("begin", "\ud800", "half of a surrogate pair"),
        ("roles", {"user": {"before": ""}}, r"roles\.user: 'after' is missing"),
        ("roles", {}, "no 'system' in roles"),
        ("sampling", {"temperature": -1}, "out of range"),
        ("sampling", {"temperature": 1, "top_p": 1.5}, "out of range"),
        ("sampling", {"temperature": True}, "expected a number"),
        ("sampling", {"temperature": 10**400}, "expected a number"),
        ("stop_token_ids", [-1], "integer from 0"),
        ("vectors", [{"messages": [], "text": ""}], "'token_ids' is missing"),
    ],
)
def test_a_prompt_that_breaks_a_rule_is_refused_by_name(name, value, message):
    with pytest.raises(FormatError, match=message):
        Prompt.from_bytes(edited(name, value))
