"""The gate: an adapter's directory in, a normalized adapter or all that is wrong with it out.

checked = check(Path("runs/pirate"), card)
for finding in checked.findings:
    print(finding)
adapter = checked.accept()      # raises AdapterRefused with every finding
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.card import Card
from exporter.peft.adapter import INITIAL, ModuleAdapter, NormalizedAdapter, Values
from exporter.peft.chat import read_chat
from exporter.peft.complete import check_complete, note_replaced
from exporter.peft.config import Config, read_config
from exporter.peft.directory import Directory, read_directory
from exporter.peft.effects import check_effects
from exporter.peft.findings import Finding, Findings, Level
from exporter.peft.fused import Site, split
from exporter.peft.initial import check_initialization, subtract
from exporter.peft.modules import Builder, check_kinds
from exporter.peft.pin import FILE, Pin, check_base, read_pin
from exporter.peft.replaced import Replacements
from exporter.peft.sites import find_sites, is_foreign
from exporter.peft.targets import EMBEDDING_NAMES, check_targets
from registry.digest import Descriptor, Digest
from registry.errors import AdapterRefused, InputError


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, and the adapter when none of them is an error."""

    findings: tuple[Finding, ...]
    adapter: NormalizedAdapter | None

    def of(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
        return tuple(finding for finding in self.findings if finding.level is level)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings' messages, as a build keeps them."""
        return tuple(finding.message for finding in self.of(Level.WARNING))

    def accept(self) -> NormalizedAdapter:
        """The adapter. Raises AdapterRefused with every finding when an error is among them."""
        errors = self.of(Level.ERROR)
        if self.adapter is None or errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise AdapterRefused(
                errors[0].message + more, hint=errors[0].hint, findings=[entry.to_json() for entry in self.findings]
            )
        return self.adapter


def check(
    directory: Path,
    card: Card,
    *,
    allow_pickle: bool = False,
    adapter_name: str | None = None,
    initial: Path | None = None,
    base_fingerprint: Digest | None = None,
    known: Mapping[str, Descriptor] | None = None,
) -> Checked:
    """Check the adapter in `directory` against a foundation's card; nothing is written, torch is not imported.

    `adapter_name` selects one of several adapters in a file; `initial` is the directory of the untrained adapter,
    with which PiSSA, OLoRA, CorDA and LoRA-GA become plain LoRA; `base_fingerprint` is the base that training saw,
    when the directory's own ptdock.json does not pin it. Only with `allow_pickle` is a `.bin` read, weights only.
    `known` are the files as an earlier check accepted them: they are not hashed again, and neither their values nor
    what config and tensors say of each other looked through, so whoever keeps the files has to compare, and the
    findings of before hold.
    Raises InputError when `directory` is none, or holds a file that cannot be read.
    """
    try:
        return _check(
            directory, card, initial, base_fingerprint, known, allow_pickle=allow_pickle, adapter_name=adapter_name
        )
    except OSError as error:  # what is not there is a finding; this is a file that cannot be read
        raise InputError(f"{error.filename or directory}: {error.strerror}") from None


def _check(
    directory: Path,
    card: Card,
    initial: Path | None,
    base_fingerprint: Digest | None,
    known: Mapping[str, Descriptor] | None,
    *,
    allow_pickle: bool,
    adapter_name: str | None,
) -> Checked:
    findings = Findings()
    trained = _read(directory, card, findings, known, allow_pickle=allow_pickle, adapter_name=adapter_name)
    if trained is None:
        return Checked(tuple(findings), None)
    check_initialization(trained.config, findings, initial=initial is not None)
    before = None if initial is None else _read_initial(initial, card, findings, allow_pickle=allow_pickle)
    modules = subtract(trained.modules, before.modules, card, findings) if before else trained.modules
    if known is None:
        check_kinds(trained.config, card, modules, findings)
        check_complete(trained.config, card, modules, findings)
        note_replaced(modules, card.factor_dtype, findings)
        check_effects(modules, card, findings)
    if trained.files.left_out:
        message = f"left out: {', '.join(trained.files.left_out)}"
        findings.note("left-out", "adapter", message, actual=list(trained.files.left_out))
    chat = read_chat(trained.files.path, trained.files.attachments, card, findings)
    pin = _pin(trained.files, findings)
    pins = {FILE: pin.base, "--base-fingerprint": base_fingerprint}
    pinned = check_base(trained.config, card, pins, findings)
    if findings.refused:  # before anything is hashed: what does not fit may have any size
        return Checked(tuple(findings), None)
    adapter = NormalizedAdapter(
        directory=trained.files.path,
        config=trained.config.raw,
        modules=dict(sorted(modules.items())),
        source={**trained.files.source, **_initial_source(before)},
        initial=None if before is None else before.files.path,
        attachments=trained.files.attachments,
        left_out=trained.files.left_out,
        base_copies=trained.undecided,
        pinned=pinned,
        lineage=pin.lineage,
        chat=chat,
    )
    return Checked(tuple(findings), adapter)


@dataclass(frozen=True, slots=True)
class _Read:
    """One directory, understood."""

    files: Directory
    config: Config
    modules: dict[str, ModuleAdapter]
    undecided: dict[str, Values]


def _read(
    directory: Path,
    card: Card,
    findings: Findings,
    known: Mapping[str, Descriptor] | None = None,
    *,
    allow_pickle: bool,
    adapter_name: str | None = None,
) -> _Read | None:
    """Files, names, config and modules of one directory; None where there is nothing to go on with."""
    files = read_directory(directory, findings, known or {}, allow_pickle=allow_pickle)
    if known is None and files.tensors is not None and is_foreign(files.tensors, findings):
        return None
    names = (*card.modules, *card.fused, *EMBEDDING_NAMES)
    config = None if files.config is None else read_config(files.config, findings, names)
    sites = [] if files.tensors is None else find_sites(files.tensors, card, findings, adapter_name)
    if config is None or not sites:
        return None
    modules, undecided = _modules(sites, config, card, findings)
    if known is None:
        _check_targets(config, sites, card, findings)
    return _Read(files, config, modules, undecided)


def _read_initial(directory: Path, card: Card, findings: Findings, *, allow_pickle: bool) -> _Read | None:
    """The initial adapter; of its findings only the errors matter."""
    own = Findings()
    read = _read(directory, card, own, allow_pickle=allow_pickle)
    for finding in own:
        if finding.level is Level.ERROR:
            findings.extend([replace(finding, message=f"initial adapter: {finding.message}")])
    return read


def _initial_source(before: _Read | None) -> dict[str, Descriptor]:
    return {} if before is None else {INITIAL + name: file for name, file in before.files.source.items()}


def _pin(files: Directory, findings: Findings) -> Pin:
    return read_pin((files.path / FILE).read_bytes(), findings) if FILE in files.attachments else Pin()


def _modules(
    sites: Iterable[Site], config: Config, card: Card, findings: Findings
) -> tuple[dict[str, ModuleAdapter], dict[str, Values]]:
    """The foundation's modules that the adapter changes, and the base copies that folding must compare."""
    builder = Builder(config, card, findings)
    replacements = Replacements(config, card, findings, builder)
    found: dict[str, ModuleAdapter] = {}
    for site in sites:
        adapter = replacements.add(site, builder.build(site))
        for part in () if adapter is None else split(adapter, site, card):
            if part.name in found:
                message = f"{site.name} and {part.name} both change {part.name}"
                findings.error("ambiguous-tensor", part.name, message, hint="keep one of them")
            found[part.name] = part
    return found, replacements.undecided


def _check_targets(config: Config, sites: Iterable[Site], card: Card, findings: Findings) -> None:
    """Cross-check under the names that the adapter uses: a fused projection stands for the modules behind it."""
    adapted = {site.name: site for site in sites if site.adapted}
    fused = {name: site.module for name, site in adapted.items() if name not in card.modules}
    behind = {target for name in fused for target in adapted[name].targets}
    universe = {name: module for name, module in card.modules.items() if name not in behind} | fused
    check_targets(config, adapted, universe, card, findings)
