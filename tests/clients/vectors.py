"""How many cases the shared vectors hold, and what a client that ran them says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "vectors"


def cases() -> int:
    """All cases in all files."""
    bucket, documents, light, relink, plan = (
        json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("bucket", "documents", "light", "relink", "plan")
    )
    lists: list[list[Any]] = [bucket["buckets"], *(each["cases"] for each in bucket["choices"])]
    lists += [documents["ignored"], documents["refused"], light["vectors"], relink["vectors"], relink["refused"]]
    return sum(map(len, [*lists, plan["vectors"]]))


def passed(output: str) -> int:
    """What a client counted; none failed."""
    match = re.fullmatch(r"(\d+) passed, 0 failed\n", output)
    assert match, output
    return int(match[1])
