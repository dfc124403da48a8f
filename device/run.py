"""Load an installed adapter and let it answer, through ExecuTorch's own runtime. Imports torch and executorch.

    chat = Chat.open(directory, "pirate")
    answer = chat.answer("What is the capital of France?", on_token=print)
    chat = Chat.open(directory, "json")        # a swap: the same foundation file, another program

A program is loaded with its foundation as the data file, never without: ExecuTorch 1.5's XNNPACK ends the whole
process when a key is asked for and there is no data file. The KV cache belongs to the adapter that filled it, so a
swap starts from an empty context.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401 - the imports register the operators
import torch
from executorch.runtime import Runtime
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from device.doctor import File, diagnose, explain
from device.installed import Installed, locate
from registry.errors import FormatError, InputError
from registry.prompt import Message, Sampling

Chooser = Callable[[torch.Tensor], int]
"""Picks the next token from the logits, a tensor of shape (vocabulary,)."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """A Chooser that draws: from the `top_k` likeliest tokens whose probabilities make up `top_p`, at a temperature.

    Temperature 0 is greedy. The same `generator` state draws the same tokens.
    """

    sampling: Sampling
    generator: torch.Generator

    @classmethod
    def seeded(cls, sampling: Sampling, seed: int) -> Sampler:
        """A sampler whose draws follow from `seed`."""
        return cls(sampling, torch.Generator().manual_seed(seed))

    def __call__(self, logits: torch.Tensor) -> int:
        """Draw a token."""
        if self.sampling.temperature == 0:
            return greedy(logits)
        count = min(self.sampling.top_k or len(logits), len(logits))
        values, tokens = logits.float().topk(count)
        shares = torch.softmax(values / self.sampling.temperature, 0)
        if self.sampling.top_p is not None:
            before = shares.cumsum(0) - shares  # the likeliest token always stays
            shares = shares * (before < self.sampling.top_p)
        return int(tokens[torch.multinomial(shares, 1, generator=self.generator)])


def greedy(logits: torch.Tensor) -> int:
    """The likeliest token; of equals the first."""
    return int(logits.argmax())


class Model:
    """One loaded program on its foundation; each `generate` starts from an empty context.

    `context` is the number of positions of the KV cache, `stop_tokens` what the program says ends an answer.
    Raises what `doctor.diagnose` and `doctor.explain` raise.
    """

    def __init__(self, program: File, foundation: File) -> None:
        diagnose(program, foundation)
        self._files = program, foundation
        try:
            self._program = Runtime.get().load_program(program.path, data_path=foundation.path)
            self._forward = self._program.load_method("forward")
        except RuntimeError as error:
            raise explain(error, program, foundation) from error
        longest = self._constant("get_max_seq_len", 1)[0]
        self.context: int = self._constant("get_max_context_len", longest)[0]
        self._chunk: int = longest if self._constant("enable_dynamic_shape", False)[0] else 1
        self.stop_tokens = frozenset(self._constant("get_eos_ids"))

    def generate(self, prompt: Sequence[int], limit: int, choose: Chooser = greedy) -> Iterator[int]:
        """One to `limit` tokens that follow the prompt's, until the context is full; the caller may stop earlier.

        Raises InputError when the prompt is empty or leaves no room for an answer.
        """
        if not 0 < len(prompt) <= self.context:
            raise InputError(
                f"the prompt has {len(prompt)} tokens, the program takes 1 to {self.context}",
                hint="shorten the prompt, or publish with a larger context",
            )
        token = choose(self._prefill(prompt))
        yield token
        for position in range(len(prompt), min(len(prompt) + limit - 1, self.context)):
            token = choose(self._logits([token], position))
            yield token

    def forced(self, tokens: Sequence[int]) -> Iterator[torch.Tensor]:
        """The logits after each of these tokens, which are fed one by one from an empty context."""
        for position, token in enumerate(tokens):
            yield self._logits([token], position)

    def _prefill(self, prompt: Sequence[int]) -> torch.Tensor:
        for start in range(0, len(prompt), self._chunk):
            logits = self._logits(prompt[start : start + self._chunk], start)
        return logits

    def _logits(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        inputs = (torch.tensor([list(tokens)], dtype=torch.int64), torch.tensor([position], dtype=torch.int64))
        try:
            (logits,) = self._forward.execute(inputs)
        except RuntimeError as error:
            raise explain(error, *self._files) from error
        vocabulary = logits.shape[-1]
        return logits.reshape(-1, vocabulary)[-1]

    def _constant(self, name: str, *default: Any) -> list[Any]:
        """The values of a constant method; `default` where the program has no such method."""
        if name not in self._program.method_names:
            return list(default)
        values = self._program.load_method(name).execute(())
        return [value.item() if isinstance(value, torch.Tensor) else value for value in values]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered: the text, its token ids (without the stop token), and the seconds of each phase."""

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    prefill_seconds: float
    decode_seconds: float


@dataclass(frozen=True, slots=True)
class Chat:
    """An installed adapter, loaded, with its tokenizer; `load_seconds` is what loading took."""

    installed: Installed
    model: Model
    tokenizer: Tokenizer
    load_seconds: float

    @classmethod
    def open(cls, directory: Path, adapter: str | None, channel: str | None = None) -> Chat:
        """Load an installed adapter, or the base program when `adapter` is None.

        Raises what `locate` and `Model` raise, and InputError where the release carries no tokenizer.
        """
        installed = locate(directory, adapter, channel)
        began = time.perf_counter()
        tokenizer = _tokenizer(installed)
        model = Model(installed.program, installed.foundation)
        return cls(installed, model, tokenizer, time.perf_counter() - began)

    def answer(
        self,
        prompt: str,
        *,
        max_new_tokens: int = 128,
        on_token: Callable[[str], None] | None = None,
        choose: Chooser = greedy,
    ) -> Answer:
        """Answer one prompt, wrapped in the chat format where there is one; `on_token` gets the text as it comes."""
        asked = self._encode(prompt)
        stop = self.model.stop_tokens | frozenset(self.installed.prompt.stop_token_ids if self.installed.prompt else ())
        voice = _Voice(self.tokenizer, on_token)
        began = first = time.perf_counter()
        for token in self.model.generate(asked, max_new_tokens, choose):
            first = first if voice.tokens else time.perf_counter()
            if token in stop:
                break
            voice.say(token)
        return Answer(voice.text, tuple(voice.tokens), len(asked), first - began, time.perf_counter() - first)

    def _encode(self, prompt: str) -> list[int]:
        """The prompt's token ids; a chat format states every special token itself, so none is added to it.

        Raises InputError for a prompt that is no Unicode text, as bytes that are not UTF-8 come from a command line.
        """
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise InputError("the prompt is not UTF-8", hint="check the terminal's encoding") from None
        if self.installed.prompt is None:
            return list(self.tokenizer.encode(prompt).ids)
        text = self.installed.prompt.render([Message("user", prompt)])
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def run(
    directory: Path,
    adapter: str | None,
    prompt: str,
    *,
    max_new_tokens: int = 128,
    on_token: Callable[[str], None] | None = None,
) -> Answer:
    """Load an installed adapter, or the base program when `adapter` is None, and let it answer once."""
    return Chat.open(directory, adapter).answer(prompt, max_new_tokens=max_new_tokens, on_token=on_token)


class _Voice:
    """Turns tokens into text as they come: a character whose bytes span two tokens appears with the second."""

    def __init__(self, tokenizer: Tokenizer, on_token: Callable[[str], None] | None) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._on_token = on_token or (lambda _: None)
        self.tokens: list[int] = []
        self.text = ""

    def say(self, token: int) -> None:
        self.tokens.append(token)
        piece = self._stream.step(self._tokenizer, token)
        if piece:
            self.text += piece
            self._on_token(piece)


def _tokenizer(installed: Installed) -> Tokenizer:
    if installed.tokenizer is None:
        raise InputError(
            f"release {installed.release} carries no tokenizer",
            hint="the base had no tokenizer.json when its foundation was exported: add it and export again",
        )
    try:
        return Tokenizer.from_buffer(installed.tokenizer)
    except Exception as error:  # the library raises bare Exceptions
        raise FormatError(f"the tokenizer of release {installed.release} cannot be read: {error}") from error
