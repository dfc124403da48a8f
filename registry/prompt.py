"""The prompt document: an adapter's or the base's chat format as plain text. A device needs no template engine.

It is rendered at publish from the chat template; `vectors` are what the template itself answered, so that any
reader in any language can check its own rendering, and its tokenizer.

    prompt.render([Message("user", "Ahoy?")])
    # begin + roles["system"].before + system + …after + roles["user"].before + "Ahoy?" + …after + generation
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from registry import canonical
from registry.documents import SCHEMA, Fields, opened
from registry.errors import FormatError, InputError

MAX_BYTES = 1 << 20
KNOWN = (
    "after before begin content critical generation messages role roles sampling schema stop_token_ids system"
    " temperature text token_ids top_k top_p trim vectors"
)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: who speaks (`system`, `user`, `assistant`, …), and what."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Affix:
    """The text before and after what a role says."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Defaults for sampling; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0 or (self.top_p is not None and not 0 < self.top_p <= 1):
            raise FormatError(f"prompt.sampling: temperature {self.temperature} or top_p {self.top_p} is out of range")

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        values = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, fields: Fields) -> Sampling:
        """From the document. Raises FormatError."""
        top_k = fields.integer("top_k", low=1) if "top_k" in fields else None
        return cls(fields.number("temperature"), fields.optional("top_p", fields.number), top_k)


@dataclass(frozen=True, slots=True)
class Vector:
    """What these messages become: the rendered text, and its token ids."""

    messages: tuple[Message, ...]
    text: str
    token_ids: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        messages = [{"role": each.role, "content": each.content} for each in self.messages]
        return {"messages": messages, "text": self.text, "token_ids": list(self.token_ids)}

    @classmethod
    def read(cls, fields: Fields) -> Vector:
        """From the document. Raises FormatError."""
        messages = tuple(Message(each.label("role"), each.text("content")) for each in fields.objects("messages"))
        return cls(messages, fields.text("text"), fields.integers("token_ids"))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat format.

    `begin` opens the text, `generation` asks for an answer and closes it; `system` is what the system says when
    the messages do not open with a system message; `trim` strips white space around each message.
    """

    roles: Mapping[str, Affix]
    generation: str
    begin: str = ""
    system: str | None = None
    trim: bool = False
    stop_token_ids: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    vectors: tuple[Vector, ...] = ()

    def __post_init__(self) -> None:
        if self.system is not None and "system" not in self.roles:
            raise FormatError("prompt: a default system message, but no 'system' in roles")

    def render(self, messages: Sequence[Message]) -> str:
        """The text that the model reads before it answers. Raises InputError for a role that the format lacks."""
        if self.system is not None and (not messages or messages[0].role != "system"):
            messages = [Message("system", self.system), *messages]
        return "".join([self.begin, *map(self._turn, messages), self.generation])

    def _turn(self, message: Message) -> str:
        affix = self.roles.get(message.role)
        if affix is None:
            raise InputError(
                f"this chat format has no role {message.role!r}", hint=f"it has {', '.join(sorted(self.roles))}"
            )
        content = message.content.strip() if self.trim else message.content
        return f"{affix.before}{content}{affix.after}"

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        return {
            "schema": SCHEMA,
            "critical": [],
            "begin": self.begin,
            "roles": {role: {"before": each.before, "after": each.after} for role, each in self.roles.items()},
            "generation": self.generation,
            **({"system": self.system} if self.system is not None else {}),
            "trim": self.trim,
            "stop_token_ids": list(self.stop_token_ids),
            "sampling": self.sampling.to_json(),
            "vectors": [each.to_json() for each in self.vectors],
        }

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        return canonical.dumps(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> Prompt:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="prompt", known=KNOWN, limit=MAX_BYTES)
        roles = fields.object("roles")
        affixes = {role: roles.object(role) for role in roles.keys()}  # noqa: SIM118 - not a dict
        return cls(
            roles={role: Affix(each.text("before"), each.text("after")) for role, each in affixes.items()},
            generation=fields.text("generation"),
            begin=fields.text("begin"),
            system=fields.optional("system", fields.text),
            trim=fields.flag("trim", default=False),
            stop_token_ids=fields.integers("stop_token_ids"),
            sampling=Sampling.read(fields.object("sampling")),
            vectors=tuple(Vector.read(each) for each in fields.objects("vectors")),
        )
