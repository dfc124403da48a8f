"""Turns a chat template into the prompt document: plain text before and after each role, no engine on the device.

The template is asked with marked messages, what stands between the marks is read off, and the document is kept
only if it renders whole conversations exactly as the template does. A template that says more than affixes can
(dates, counters) gives None: no format is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from exporter import tokenizer
from exporter.confined import confined
from registry.errors import FormatError, Unavailable
from registry.prompt import Affix, Message, Prompt, Sampling, Vector

USER, REPLY, SYSTEM = "user", "assistant", "system"
_MARKS = ("\u2042ptdock-a\u2042", "\u2042ptdock-b\u2042", "\u2042ptdock-c\u2042")
_VECTORS = (
    (Message(USER, "What is the capital of France?"),),
    (Message(USER, "Hello, who are you?"), Message(REPLY, "An assistant."), Message(USER, "  Count to 3: 1, 2,  ")),
)
_MORE = (
    (Message(SYSTEM, "Answer in one word."), Message(USER, "Say \u00e9t\u00e9.")),
    (Message(SYSTEM, " Be brief. "), Message(USER, "a"), Message(REPLY, " b\n"), Message(USER, "c")),
)
MAX_TEMPLATE = 1 << 18
"""Characters; the longest templates of published models have a tenth of it."""
SECONDS = 2
Encode = Callable[[str], Sequence[int]]
Talk = tuple[tuple[Message, ...], bool]
"""Messages, and whether an answer is asked for."""

_TALK = (Message(USER, _MARKS[0]), Message(REPLY, _MARKS[1]), Message(USER, _MARKS[2]))
_SPACED = (Message(USER, f" {_MARKS[0]} "),)
_WITH_SYSTEM = (Message(SYSTEM, _MARKS[1]), Message(USER, _MARKS[0]))
_ASKED: tuple[Talk, ...] = (
    (_TALK[:1], True),
    (_TALK, True),
    (_TALK[:1], False),
    (_TALK[:2], False),
    (_SPACED, False),
    (_WITH_SYSTEM, False),
    *((talk, True) for talk in _VECTORS + _MORE),
)
"""All that `read_prompt` asks, so that one process can answer it."""


class TemplateRefusedError(Exception):
    """The template raised, or answers nothing usable, for these messages."""


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template in the dialect of transformers: Jinja in its immutable sandbox, with the special tokens.

    A template is a program, so it runs in a process that is ended when it takes too long or too much memory.
    """

    text: str
    special_tokens: Mapping[str, str]

    def render(self, messages: Sequence[Message], *, generation: bool) -> str:
        """What the template makes of `messages`. Raises TemplateRefusedError, Unavailable without jinja2."""
        talk = (tuple(messages), generation)
        talks = _ASKED if talk in _ASKED else (talk,)
        answers = _rendered(self.text, tuple(sorted(self.special_tokens.items())), talks)
        answer = answers.get(talk, {"error": "the template takes too long, or too much memory"})
        if "error" in answer:
            raise TemplateRefusedError(answer["error"])
        return answer["text"]


@lru_cache(maxsize=64)
def _rendered(text: str, tokens: tuple[tuple[str, str], ...], talks: tuple[Talk, ...]) -> dict[Talk, dict[str, str]]:
    """What a template answers to each of these talks, as far as it came."""
    if len(text) > MAX_TEMPLATE:
        raise TemplateRefusedError(f"{len(text)} characters, at most {MAX_TEMPLATE} are read")
    rows = [([{"role": each.role, "content": each.content} for each in talk], asks) for talk, asks in talks]
    answers = confined("render", {"template": text, "special_tokens": dict(tokens), "talks": rows}, seconds=SECONDS)
    if answers and "missing" in answers[0]:
        raise Unavailable("reading a chat template needs jinja2", hint="pip install 'ptdock[export]'")
    return dict(zip(talks, answers, strict=False))


def read_prompt(
    template: Template, encode: Encode, *, stop_token_ids: Sequence[int], sampling: Sampling | None = None
) -> Prompt | None:
    """The prompt document of a template, None when affixes cannot say what it says.

    `encode` answers a text's token ids, special tokens in the text recognised and none added.
    """
    try:
        found = _read(template)
        found = replace(found, trim=_trims(template))
        exact = all(found.render(talk) == template.render(talk, generation=True) for talk in _talks(found))
        vectors = tuple(_vector(found, talk, encode) for talk in _VECTORS)
    except (TemplateRefusedError, FormatError, ValueError, IndexError):
        return None
    if not exact:
        return None
    return replace(found, stop_token_ids=tuple(stop_token_ids), sampling=sampling or Sampling(), vectors=vectors)


def _talks(found: Prompt) -> tuple[tuple[Message, ...], ...]:
    return _VECTORS + _MORE if SYSTEM in found.roles else _VECTORS


def _vector(found: Prompt, messages: tuple[Message, ...], encode: Encode) -> Vector:
    text = found.render(messages)
    return Vector(messages, text, tuple(encode(text)))


def _trims(template: Template) -> bool:
    return _SPACED[0].content not in template.render(_SPACED, generation=False)


def _read(template: Template) -> Prompt:
    """Read the affixes off marked conversations. Raises ValueError where the marks do not come back."""
    a, b, c = _MARKS
    asked, whole = template.render(_TALK[:1], generation=True), template.render(_TALK, generation=True)
    opening, tail = asked.split(a)
    start, rest = whole.split(b)
    between, whole_tail = rest.split(c)
    if not start.startswith(opening + a) or whole_tail != tail:
        raise ValueError("a later message changes what an earlier one looks like")
    after_user = _after_user(template, asked, a)
    before_reply = start[len(opening + a) + len(after_user) :]
    if start[len(opening + a) :] != after_user + before_reply:
        raise ValueError("what follows a user's turn depends on what comes after")
    after_reply, before_user = _cut(template, _TALK[:2], between, opening)
    roles = {USER: Affix(before_user, after_user), REPLY: Affix(before_reply, after_reply)}
    found = Prompt(roles, tail[len(after_user) :], begin=opening.removesuffix(before_user))
    return _with_system(template, found)


def _after_user(template: Template, asked: str, mark: str) -> str:
    """Where a user's turn ends and the request for an answer begins; some templates do not tell: then nowhere."""
    plain = template.render(_TALK[:1], generation=False)
    return plain.split(mark)[1] if asked.startswith(plain) else ""


def _cut(template: Template, talk: Sequence[Message], between: str, opening: str) -> tuple[str, str]:
    """What ends a reply and what begins a user's turn; the latter also ends the conversation's opening."""
    ending = template.render(talk, generation=False).split(talk[-1].content)[1]
    if between.startswith(ending) and opening.endswith(between[len(ending) :]):
        return ending, between[len(ending) :]
    start = next(at for at in range(len(between) + 1) if opening.endswith(between[at:]))
    return between[:start], between[start:]


def _with_system(template: Template, found: Prompt) -> Prompt:
    a, b, _ = _MARKS
    try:
        text = template.render(_WITH_SYSTEM, generation=False)
        before, rest = text.split(b)
        after = rest.split(a)[0].removesuffix(found.roles[USER].before)
    except (TemplateRefusedError, ValueError):
        return found
    if found.begin and before.startswith(found.begin):
        before = before.removeprefix(found.begin)
        return replace(found, roles={**found.roles, SYSTEM: Affix(before, after)})
    roles = {**found.roles, SYSTEM: Affix(before, after)}
    if found.begin.startswith(before) and found.begin.endswith(after) and len(found.begin) >= len(before + after):
        default = found.begin[len(before) : len(found.begin) - len(after)]
        return replace(found, roles=roles, begin="", system=default) if found.begin else replace(found, roles=roles)
    return replace(found, roles=roles)


def prompt_of(files: tokenizer.Files) -> Prompt | None:
    """The prompt document of a tokenizer's files by name; None without a chat template or `tokenizer.json`.

    Raises FormatError for damaged files, Unavailable where jinja2 or tokenizers is missing.
    """
    text = tokenizer.chat_template(files)
    if text is None or tokenizer.TOKENIZER not in files:
        return None
    template = Template(text, tokenizer.special_tokens(files))
    return read_prompt(template, encoder(files), stop_token_ids=tokenizer.eos_ids(files))


def encoder(files: tokenizer.Files) -> Encode:
    """The tokenizer of these files, as a function from text to ids. Raises Unavailable, FormatError."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  only publishing needs it
    except ModuleNotFoundError:
        raise Unavailable("token ids need tokenizers", hint="pip install 'ptdock[export]'") from None
    try:
        loaded = Tokenizer.from_str(files[tokenizer.TOKENIZER].decode())
    except Exception as error:  # noqa: BLE001  the library raises a bare Exception
        raise FormatError(f"{tokenizer.TOKENIZER}: {error}") from None
    return lambda text: list(loaded.encode(text, add_special_tokens=False).ids)
