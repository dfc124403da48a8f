"""An adapter's files as a form: single named files into a directory of their own, and what they are to become.

form-data; name="options"                       {"foundation": "smollm2", "version": "1.2.0"}
form-data; name="file"; filename="adapter_model.safetensors"
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.types import Message

from server.problems import Problem
from server.reading import bounded, model_of, too_large

M = TypeVar("M", bound=BaseModel)

_FILES = 64
_OPTIONS = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


async def read_form(request: Request, limit: int) -> FormData:
    """The form, its files kept outside of memory; the body has at most `limit` bytes. Raises Problem."""
    bounded(request, limit, "multipart/form-data")
    left = limit

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise too_large(limit)
        return message

    return await Request(request.scope, receive).form(max_files=_FILES, max_fields=1, max_part_size=_OPTIONS)


def options_of(form: FormData, model: type[M]) -> M:
    """The field `options`, read strictly. Raises Problem."""
    given = form.get("options")
    if not isinstance(given, str):
        raise Problem(422, "the form has no field 'options'", "it holds what the files are to become, in JSON")
    return model_of(given.encode(), model, "options")


def write_files(form: FormData, directory: Path) -> None:
    """Write every file of the form into a directory. Raises Problem for a name that is a path, or stands twice."""
    for key, value in form.multi_items():
        if key == "options":
            continue
        name = value.filename if isinstance(value, UploadFile) else None
        if key != "file" or not isinstance(value, UploadFile) or not name or not _NAME.fullmatch(name):
            raise Problem(
                422, f"{(name or key)[:100]!r} is not a file's name", "send single files, without directories"
            )
        if (directory / name).exists():
            raise Problem(422, f"{name} stands twice in the form")
        with open(directory / name, "wb") as file:
            shutil.copyfileobj(value.file, file, 1 << 20)


FORM: dict[str, Any] = {
    "type": "object",
    "required": ["options", "file"],
    "properties": {
        "options": {"type": "string", "contentMediaType": "application/json"},
        "file": {"type": "array", "maxItems": _FILES, "items": {"type": "string", "format": "binary"}},
    },
}
