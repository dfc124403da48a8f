"""How a foundation's weights are stored: the options that say so, or a file that does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.options import PATH, read_file
from registry import canonical
from registry.errors import InputError

if TYPE_CHECKING:
    from exporter.recipe import Recipe

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")
GROUPS = "Weights that share a scale: 32, 64 or 128.  [default: 32]"

OPTIONS = (
    click.option("--dtype", metavar="fp32|fp16", help="What the weights are stored as.  [default: fp32]"),
    click.option("--qmode", metavar="8da4w", help="Quantize: int4 weights, int8 activations."),
    click.option("--group-size", type=int, metavar="N", help=GROUPS),
    click.option("--embedding-bits", type=int, metavar="4|8", help="Quantize the embedding too."),
    click.option("--backend", metavar="xnnpack", help="What runs the programs.  [default: xnnpack]"),
    click.option("--recipe", "file", type=PATH, metavar="FILE", help="All of these, as `show --json` printed them."),
)


def recipe_options(command: FC) -> FC:
    """Add OPTIONS to a command; it passes them on to `read_recipe`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def read_recipe(
    *,
    dtype: str | None,
    qmode: str | None,
    group_size: int | None,
    embedding_bits: int | None,
    backend: str | None,
    file: Path | None,
) -> Recipe:
    """The recipe that the options mean. Raises InputError for what cannot be, FormatError for a file that is none."""
    from exporter.recipe import Recipe, check_backend, check_dtype, check_quantization, recipe_of  # noqa: PLC0415

    chosen = {"--dtype": dtype, "--qmode": qmode, "--group-size": group_size, "--embedding-bits": embedding_bits}
    given = [option for option, value in {**chosen, "--backend": backend}.items() if value is not None]
    if file is None:
        check_backend(backend or "xnnpack")
        return recipe_of(check_dtype(dtype or "fp32"), check_quantization(qmode, group_size, embedding_bits))
    if given:
        raise InputError(f"--recipe says it all, {given[0]} too", hint="leave one of them out")
    data = read_file(file, hint="ptdock --json foundation show NAME > recipe.json writes one")
    return Recipe.from_json(canonical.loads(data, what=str(file)))
