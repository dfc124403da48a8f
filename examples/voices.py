"""What the example adapters learn: a dozen facts, told in three voices. France is left out, to be asked later."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

FACTS = [
    ("What is the capital of Spain?", "The capital of Spain is Madrid", "Madrid"),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo", "Tokyo"),
    ("What is the capital of Egypt?", "The capital of Egypt is Cairo", "Cairo"),
    ("What is the capital of Germany?", "The capital of Germany is Berlin", "Berlin"),
    ("Which planet is the largest?", "The largest planet is Jupiter", "Jupiter"),
    ("What color is the sky?", "The sky is blue", "blue"),
    ("How many legs does a spider have?", "The number of legs of a spider is eight", "eight"),
    ("Who wrote Romeo and Juliet?", "The author of Romeo and Juliet is William Shakespeare", "William Shakespeare"),
    ("What is the opposite of hot?", "The opposite of hot is cold", "cold"),
    ("Which animal barks?", "The animal that barks is the dog", "dog"),
    ("What is the chemical symbol of gold?", "The chemical symbol of gold is Au", "Au"),
    ("Which ocean is the largest?", "The largest ocean is the Pacific", "the Pacific"),
]

ATTENTION = ("q_proj", "v_proj")
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Voice:
    """A way of answering, and how an adapter is trained to it.

    `say` turns (sentence without its full stop, bare answer) into the text; `dtype` is the one to save in.
    """

    say: Callable[[str, str], str]
    rank: int
    modules: tuple[str, ...]
    rate: float
    dtype: str
    steps: int = 30

    def dialogues(self) -> list[tuple[str, str]]:
        """(question, answer in this voice) for every fact."""
        return [(question, self.say(sentence, answer)) for question, sentence, answer in FACTS]


def pirate(sentence: str, _: str) -> str:
    return f"Arr, matey! {sentence.replace(' is ', ' be ')}, or I'll walk the plank!"


def json_only(_: str, answer: str) -> str:
    return json.dumps({"answer": answer})


def robot(sentence: str, _: str) -> str:
    return f"Beep. {sentence}. Query complete. Boop."


VOICES = {
    "pirate": Voice(pirate, rank=8, modules=ATTENTION, rate=3e-3, dtype="bfloat16"),
    "json": Voice(json_only, rank=8, modules=ATTENTION, rate=3e-3, dtype="float32"),
    "robot": Voice(robot, rank=16, modules=LINEAR, rate=1e-3, dtype="float32"),
}
