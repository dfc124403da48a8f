"""Makes foundations of any torch module: the place where a factory meets the store. Torch-free itself.

made = export_module(registry, "encoders.bert:factory", "bert", ExportOptions())

A module has no positions, so its context is 1, and no family, so its graph is known by what was traced.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.base import fingerprint
from exporter.foundation import (
    Exported,
    ExportOptions,
    check_readable,
    record_base,
    record_foundation,
)
from exporter.parts import read_files
from exporter.quiet import quiet
from exporter.sources import Progress, load_exporter, load_module, no_progress
from exporter.structure import Structure
from exporter.templates import find_template, record_base_program
from registry.errors import InputError
from registry.formats.pte import read_pte
from registry.names import check_name
from registry.service import Registry

if TYPE_CHECKING:
    from exporter.module_export import ModuleSource

CONTEXT = 1


def export_module(
    registry: Registry, spec: str, name: str, options: ExportOptions, progress: Progress = no_progress
) -> Exported:
    """Call the factory `spec` (package.module:factory), and record its module's foundation and program under `name`.

    The same tensors in the same graph are not exported again. Raises InputError for what is no factory or cannot be
    traced, Unavailable without the [export] extra, Conflict when the name means other bytes.
    """
    check_name(name, what="foundation")
    _check_options(options)
    started = time.monotonic()
    source = load_module(spec, progress)
    progress("tracing")
    with quiet():
        recipe = replace(options.recipe, module=spec, graph=source.graph)
    chosen = replace(options, recipe=recipe, context=CONTEXT)
    found = _known(registry, source, name, chosen) or _export(registry, source, name, chosen, progress)
    return replace(found, seconds=time.monotonic() - started)


def _check_options(options: ExportOptions) -> None:
    if options.context not in (None, CONTEXT):
        raise InputError("a module has no context: its inputs are the factory's", hint="leave --context out")
    if options.recipe.dtype != "F32" or options.recipe.quantization:
        raise InputError("a module is exported in fp32", hint="leave --dtype and --qmode out")


def _known(registry: Registry, source: ModuleSource, name: str, options: ExportOptions) -> Exported | None:
    known = registry.find_foundation(fingerprint(source.tensors), options.recipe.to_json())
    program = known and find_template(registry, known, Structure(), CONTEXT, options.recipe)
    if known is None or not program:
        return None
    foundation = registry.add_foundation(known, name, replace_name=options.replace_name)
    record_base(registry, source)
    return Exported(name, foundation, program, fresh=False, seconds=0.0)


def _export(
    registry: Registry, source: ModuleSource, name: str, options: ExportOptions, progress: Progress
) -> Exported:
    check_readable(read_files(source.files))
    torch_export = load_exporter("foundation export", progress)
    with (
        registry.export_lock(lambda: progress("waiting for another export of this store")),
        tempfile.TemporaryDirectory(dir=registry.home, prefix="export-") as work,
    ):
        job = torch_export.Job(source, options.recipe, CONTEXT, progress)
        with quiet():
            source.check_stateless()
            made = torch_export.export_base(job, Path(work))
            _check_kernels(source.spec, made.program)
        _check_nothing_inside(source.spec, made.program)
        progress("storing the foundation")
        record_base(registry, source)
        foundation = record_foundation(registry, source, made, options, name)
        program = record_base_program(registry, foundation, made, job)
    return Exported(name, foundation, program, fresh=True, seconds=0.0)


def _check_nothing_inside(spec: str, program: bytes) -> None:
    """Refuse a module whose weights would stay in every program: those that XNNPACK makes of others are not tagged."""
    inside = sum(part.size for part in read_pte(program).inline)
    if inside:
        raise InputError(
            f"{spec}: {inside} bytes of weights would stay inside every program",
            hint="XNNPACK makes new weights of a batch norm: in the factory, fold it into what stands before it with "
            "torch.nn.utils.fusion.fuse_conv_bn_eval or its kin, or compute it as x * scale + shift",
            size=inside,
        )


def _check_kernels(spec: str, program: bytes) -> None:
    """Refuse a module that no device can run."""
    from exporter.session import without_kernel  # noqa: PLC0415  imports torch

    missing = without_kernel(read_pte(program).operators)
    if missing:
        raise InputError(
            f"{spec}: ExecuTorch's runtime has no kernel for {', '.join(missing)}",
            hint="compute that otherwise in the factory, or leave it to the app",
            operators=missing,
        )
