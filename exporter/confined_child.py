"""The process that `exporter.confined` starts: it limits itself, does one task, and answers line by line.

    python -P confined_child.py SECONDS BYTES < {"task": "match", …}

A script of its own, for it must load nothing but what the task needs. Each answer is one line of JSON, written as soon
as it is known: when the limits end the process, the lines tell how far it came.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

MAX_TEXT = 1 << 20
"""Characters of one rendered text; a prompt document takes no more."""


def match(ask: Mapping[str, Any]) -> Iterator[str | None]:
    """For each of `patterns`: compile it and try it on all `names`; what is wrong with it, None for nothing."""
    for pattern in ask["patterns"]:
        try:
            compiled = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            yield f"not a regular expression: {error}"
            continue
        for name in ask["names"]:
            compiled.match(name)
            compiled.fullmatch(name)
        yield None


def render(ask: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """For each of `talks` (messages, generation): {"text": what the template makes of it}, or {"error": why not}.

    The dialect is that of transformers: Jinja in its immutable sandbox, with `raise_exception` and `generation`.
    """
    try:
        template = _compiled(ask["template"])
    except ModuleNotFoundError:
        yield {"missing": "jinja2"}
        return
    except Exception as error:  # noqa: BLE001  not a template, or one of unknown tags
        yield from [{"error": str(error)}] * len(ask["talks"])
        return
    for messages, generation in ask["talks"]:
        try:
            text = template.render(messages=messages, add_generation_prompt=generation, **ask["special_tokens"])
        except Exception as error:  # noqa: BLE001  a template is a program: it may raise anything
            yield {"error": str(error)}
        else:
            yield {"text": text} if len(text) <= MAX_TEXT else {"error": f"renders {len(text)} characters"}


def _compiled(text: str) -> Any:
    from jinja2 import TemplateError  # noqa: PLC0415  the other task does without
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    class Generation(Extension):
        """`{% generation %}` marks, for training, what the model wrote; its body is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012  jinja's own spelling

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    extensions = [loopcontrols, Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(text)


TASKS = {"match": match, "render": render}


def limit(seconds: int, memory: int) -> None:
    """Let the kernel end this process after `seconds` of processor time, and refuse it more than `memory` bytes."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no limits: there the parent's patience must do
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main(arguments: Sequence[str]) -> None:
    """Read one task from standard input and write its answers to standard output."""
    limit(int(arguments[0]), int(arguments[1]))
    ask = json.load(sys.stdin)
    for answer in TASKS[ask["task"]](ask):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
