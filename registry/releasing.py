"""How a release is made of adapter versions, and how a channel's manifest is issued.

The rules are pure: `choose_lines` decides which builds stand on which foundation, `write_line` what devices read of
it. `create` and `issue` join them with the catalog, inside the one transaction that moves the channel: the document and
the manifest are in the store before the rows that point at them are committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from registry import lookup, rollout
from registry import release as wire
from registry.artifacts import Base, Build, Channel, Line, Release, ReleaseResult, Template, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, channels, content, foundations, log
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError
from registry.manifest import WHOLE, Manifest, ReleasePin
from registry.names import check_name
from registry.proving import require_proofs

SETTINGS = {"poll_seconds": 4 * 3600, "lifetime_seconds": 30 * 86400}
REQUIRE_PROOF = "require_proof"
_TOKENIZERS = {"tokenizer.json": "hf-json", "tokenizer.model": "sentencepiece"}


@dataclass(frozen=True, slots=True)
class Request:
    """What `release create` asks for; `lines` None: every foundation on which all versions have a build."""

    channel: str
    refs: Sequence[str]
    lines: Sequence[str | Digest] | None = None
    share_bp: int = WHOLE
    allow_holes: bool = False
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that a release is to hold, and its builds that are not revoked, oldest first."""

    version: Version
    builds: tuple[Build, ...]

    @property
    def ref(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.version.adapter}@{self.version.version}"

    def on(self, foundation: Digest) -> Build | None:
        """The newest build on a foundation."""
        found = [build for build in self.builds if build.foundation == foundation]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a line's document is written from, besides the builds: its foundation's file, templates and base."""

    file: Descriptor
    templates: tuple[Template, ...]
    base: Base


def new_salt() -> str:
    """A salt that nobody could know before: 32 hex digits."""
    return secrets.token_hex(16)


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A channel's settings with the defaults filled in. Raises InputError for unknown or impossible ones."""
    known = (*SETTINGS, REQUIRE_PROOF)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise InputError(f"unknown channel setting {unknown[0]!r}", hint=f"settings: {', '.join(known)}")
    if type(settings.get(REQUIRE_PROOF, False)) is not bool:
        raise InputError(f"{REQUIRE_PROOF} is true or false, not {settings[REQUIRE_PROOF]!r}")
    for name, value in settings.items():
        if name in SETTINGS and (type(value) is not int or value < 1):
            raise InputError(f"{name} is a whole number of seconds from 1, not {value!r}")
    return {**SETTINGS, **settings}


def choose_lines(wanted: Sequence[Wanted], order: Sequence[Digest], *, given: bool, holes: bool) -> tuple[Line, ...]:
    """The lines of a release on the foundations in `order`, with the newest usable build of each adapter.

    `given`: the caller named these foundations, so each becomes a line; else only complete ones do, or with `holes`
    those that have any build. Raises Conflict with `values["matrix"]` when adapters are missing, or when a line would
    hold two versions of one.
    """
    lines = [Line(foundation, _builds_on(wanted, foundation)) for foundation in order]
    names = {each.version.adapter for each in wanted}
    complete = [line for line in lines if line.builds.keys() == names]
    chosen = lines if given else complete or ([line for line in lines if line.builds] if holes else [])
    if not chosen or (len(complete) < len(chosen) and not holes):
        raise _incomplete(wanted, chosen or lines)
    return tuple(chosen)


def _builds_on(wanted: Sequence[Wanted], foundation: Digest) -> dict[str, Build]:
    found: dict[str, Build] = {}
    for each in sorted(wanted, key=lambda one: one.ref):
        build = each.on(foundation)
        if build is None:
            continue
        if build.adapter in found:
            raise Conflict(
                f"{build.adapter} {found[build.adapter].version} and {build.version} both have a build on {foundation}",
                hint="a line holds one version of each adapter: name one of them",
            )
        found[build.adapter] = build
    return found


def _incomplete(wanted: Sequence[Wanted], lines: Sequence[Line]) -> Conflict:
    matrix = {
        str(line.foundation): {each.ref: each.on(line.foundation) is not None for each in wanted} for line in lines
    }
    missing = [
        f"{ref} on {foundation[:19]}" for foundation, row in matrix.items() for ref, there in row.items() if not there
    ]
    without = [each.ref for each in wanted if not each.builds]
    return Conflict(
        f"no build for {', '.join(without or missing)}",
        hint="publish the versions on that foundation, name other lines, or allow holes explicitly",
        matrix=matrix,
    )


def write_line(line: Line, parts: Parts) -> wire.Line:
    """What devices read of a line. Raises Conflict when its foundation has no base program."""
    used = {build.template for build in line.builds.values()}
    templates = [template for template in parts.templates if template.digest in used]
    program = _base_program(line.foundation, parts.templates, templates)
    return wire.Line(
        foundation=wire.FoundationEntry(parts.file),
        base=program.hollow,
        requires=_requires([program, *templates]),
        adapters=tuple(_entry(build, parts.templates) for _, build in sorted(line.builds.items())),
        tokenizer=_tokenizer(parts.base),
        prompt=parts.base.prompt,
    )


def _entry(build: Build, templates: Sequence[Template]) -> wire.AdapterEntry:
    parts = build.parts
    template = next(template for template in templates if template.digest == build.template)
    return wire.AdapterEntry(
        build.adapter,
        build.version,
        build.file,
        self_test=parts.get("self_test"),
        prompt=parts.get("prompt"),
        factors=wire.Factors(parts["wire"], template.hollow, parts["wire_table"]) if "wire" in parts else None,
    )


def _base_program(foundation: Digest, templates: Sequence[Template], used: Sequence[Template]) -> Template:
    """The newest program without an adapter, if possible made for the same context and ExecuTorch as the builds."""
    programs = [template for template in templates if not template.structure["modules"]]
    if not programs:
        raise Conflict(f"{foundation} has no base program", hint="run `ptdock foundation export` again: it adds one")
    alike = {(template.context, template.executorch) for template in used}
    return [p for p in programs if (p.context, p.executorch) in alike or p is programs[-1]][-1]


def _requires(templates: Sequence[Template]) -> wire.Requires:
    """What runs all of these programs."""
    runtimes = [template.runtime for template in templates]
    return wire.Requires(
        minimum=max(runtime.minimum for runtime in runtimes),
        guaranteed=min(runtime.guaranteed for runtime in runtimes),
        backends=tuple(sorted({name for runtime in runtimes for name in runtime.backends})),
        operators=tuple(sorted({name for runtime in runtimes for name in runtime.operators})),
    )


def _tokenizer(base: Base) -> wire.Tokenizer | None:
    for name, form in _TOKENIZERS.items():
        if name in base.files:
            return wire.Tokenizer(form, base.files[name])
    return None


def create(change: Change, store: BlobStore, request: Request) -> ReleaseResult:
    """Record a release and, unless it is a draft, offer it to a share of the channel's devices."""
    session = change.session
    channel = lookup.channel(session, request.channel)
    release = _record(change, store, request)
    if channel.settings.get(REQUIRE_PROOF):
        require_proofs(session, release.lines)
    after = {"document": str(release.document.digest), "adapters": sorted(request.refs)}
    change.record("release.create", f"release {release.number}", after=after)
    if request.draft:
        return ReleaseResult(release, channel, None)
    if len(channel.arms) == 1:  # one arm holds everything, so a new salt moves nobody
        channel = replace(channel, salt=new_salt())
        channels.update_channel(change, channel.name, salt=channel.salt)
    arms = rollout.start(channel.arms, release.number, request.share_bp)
    channel, file = issue(change, store, channel, arms)
    return ReleaseResult(release, channel, file)


def _record(change: Change, store: BlobStore, request: Request) -> Release:
    session = change.session
    wanted = _wanted(change, request.refs)
    given = None if request.lines is None else [lookup.foundation_digest(session, ref) for ref in request.lines]
    order = given if given is not None else list(reversed(foundations.digests(session)))
    lines = choose_lines(wanted, list(dict.fromkeys(order)), given=given is not None, holes=request.allow_holes)
    document = wire.ReleaseDocument(
        release=channels.next_number(session),
        lines=tuple(write_line(line, _parts(change, line.foundation)) for line in lines),
        holes=len({frozenset(line.builds) for line in lines}) > 1,
    )
    file = store.put_bytes(document.to_bytes())
    content.require(change, store, [file])
    release = Release(document.release, file, lines, change.at, document.holes)
    channels.insert_release(change, release)
    return release


def _wanted(change: Change, refs: Sequence[str]) -> list[Wanted]:
    if not refs:
        raise InputError("a release holds at least one adapter", hint="name one: --adapter NAME@VERSION")
    versions = [lookup.version(change.session, ref) for ref in dict.fromkeys(refs)]
    yanked = [f"{each.adapter}@{each.version} ({each.yanked})" for each in versions if each.yanked is not None]
    if yanked:
        raise Conflict(f"yanked: {', '.join(yanked)}", hint="no new release may take a yanked version: use another")
    return [
        Wanted(each, tuple(b for b in adapters.builds(change.session, each.adapter, each.version) if not b.revoked))
        for each in versions
    ]


def _parts(change: Change, foundation: Digest) -> Parts:
    found = lookup.foundation(change.session, foundation)
    templates = foundations.templates(change.session, foundation)
    return Parts(found.file, templates, lookup.base(change.session, found.base))


def create_channel(change: Change, name: str, settings: Mapping[str, Any]) -> Channel:
    """Record a channel; a deleted one comes back with another salt and goes on with its sequence."""
    check_name(name, what="channel")
    if channels.channel(change.session, name) is not None:
        raise Conflict(f"channel {name!r} exists", hint="choose another name, or use it as it is")
    channels.insert_channel(change, name, new_salt(), settings)
    change.record("channel.create", f"channel {name}", after=dict(settings))
    return lookup.channel(change.session, name)


def delete_channel(change: Change, store: BlobStore, name: str) -> None:
    """Withdraw a channel; a last manifest tells devices to keep what they have."""
    channel = lookup.channel(change.session, name)
    change.record("channel.delete", f"channel {name}", before={"arms": [arm.to_json() for arm in channel.arms]})
    if channel.sequence:
        issue(change, store, channel, rollout.NOTHING)
    channels.update_channel(change, name, deleted_at=change.at)


def issue(
    change: Change, store: BlobStore, channel: Channel, arms: rollout.Arms, *, after: int = 0
) -> tuple[Channel, Descriptor]:
    """Write a channel's next manifest with these arms; from the commit on, it is the channel's state.

    The change's events are recorded before, so that the manifest names the log's head after them. Its sequence is above
    all of the channel's, and above `after`, for a store that was restored behind what it had published.
    """
    session = change.session
    offered = [arm.release for arm in arms if arm.release is not None]
    documents = channels.documents(session, offered)
    head = log.head(session)
    manifest = Manifest(
        registry=log.identity(session),
        channel=channel.name,
        sequence=max(channels.last_sequence(session, channel.name), after) + 1,
        issued=int(change.now),
        expires=int(change.now) + channel.settings["lifetime_seconds"],
        poll_seconds=channel.settings["poll_seconds"],
        salt=channel.salt,
        arms=arms,
        releases=tuple(ReleasePin(number, documents[number]) for number in offered),
        revoked=channels.revoked(session, channel.name, offered),
        log_head=head,
    )
    file = store.put_bytes(manifest.to_bytes())
    content.require(change, store, [file])
    channels.insert_manifest(change, manifest, file, head)
    return replace(channel, sequence=manifest.sequence, arms=arms), file
