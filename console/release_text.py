"""What a release changes and what it costs, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from console import render
from console.documents import names_of
from registry.artifacts import Line, Release
from registry.digest import Digest
from registry.rollout import percent

if TYPE_CHECKING:
    from registry.budget import Budget
    from registry.comparing import AdapterChange, Difference
    from registry.costing import Cost, Costs
    from registry.query import Standing
    from registry.release import Line as WireLine

Names = Mapping[str, Digest]
_SHOWN = 4


def label(names: Names, foundation: Digest) -> str:
    """A foundation's names, or its digest."""
    return ", ".join(names_of(names, foundation)) or foundation.short


def adapters_line(refs: Sequence[str]) -> str:
    """Some adapters, and how many more."""
    more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
    return ", ".join(refs[:_SHOWN]) + more


def standing_line(standing: Standing) -> str:
    """Where a release stands, in one line."""
    return ", ".join(f"{name} {percent(arm.share_bp)}" for name, arm in standing.arms) or standing.state


def release_text(found: Release, document_lines: Sequence[WireLine], standing: Standing, names: Names) -> str:
    """One release: where it stands, and each line with what it requires and holds."""
    head = render.fields(
        [
            ("release", found.number),
            ("state", standing_line(standing)),
            ("made", f"{render.when(found.created)} UTC"),
            ("document", found.document.digest),
            ("holes", "allowed" if found.holes else None),
        ]
    )
    lines = [_line_text(line, wire, names) for line, wire in zip(found.lines, document_lines, strict=True)]
    return "\n\n".join([head, *lines])


def _line_text(line: Line, wire: WireLine, names: Names) -> str:
    on_demand = {entry.name for entry in wire.adapters if entry.delivery == "on-demand"}
    rows = [
        (name, build.version, render.size(build.file.size), build.file.digest, "on demand" if name in on_demand else "")
        for name, build in sorted(line.builds.items())
    ]
    table = render.table(("adapter", "version", "size", "digest", ""), rows, right={2})
    return f"on {render.bold(label(names, line.foundation))}\n{render.dim(_requires(wire))}\n{table}"


def _requires(wire: WireLine) -> str:
    needs = wire.requires
    parts = [
        f"ExecuTorch {needs.minimum[0]}.{needs.minimum[1]} to {needs.guaranteed[0]}.{needs.guaranteed[1]}",
        *needs.backends,
        *([f"{render.size(needs.ram_bytes)} RAM"] if needs.ram_bytes else []),
        *(f"{platform} app {build}" for platform, build in sorted(needs.app.items())),
    ]
    return f"requires {', '.join(parts)}"


def difference_text(found: Difference, names: Names) -> str:
    """What changes, and the bytes for a device in each state."""
    rows = [(_sign(each), each.name, _versions(each.before), _versions(each.after)) for each in found.adapters]
    foundations = [("+", label(names, each)) for each in found.foundations_added]
    foundations += [("-", label(names, each)) for each in found.foundations_removed]
    costs = [
        (_state(state.release), label(names, state.foundation) if state.foundation else "", *_figures(state.costs))
        for state in found.states
    ]
    head = f"release {found.before} → {found.after}" if found.before else f"release {found.after}"
    parts = [
        render.bold(head),
        render.table(("", "adapter", "before", "after"), rows) or "the same adapters",
        render.table(("", "foundation"), foundations),
        render.table(("a device that", "on", "as programs", "as factors", "peak disk"), costs, right={2, 3, 4}),
    ]
    return "\n\n".join(part for part in parts if part)


def _sign(change: AdapterChange) -> str:
    if not change.before:
        return "+"
    if not change.after:
        return "-"
    return "rebuilt" if change.rebuilt else "~"


def _versions(versions: Sequence[str]) -> str:
    return ", ".join(versions) or "-"


def _state(release: int | None) -> str:
    return "holds nothing" if release is None else f"runs release {release}"


def _figures(costs: Costs) -> tuple[str, str, str]:
    return _bytes(costs.plain), _bytes(costs.factors), render.size(costs.factors.peak_disk)


def _bytes(cost: Cost) -> str:
    if cost.refused:
        return ", ".join(cost.refused)
    if cost.pieces < cost.bytes:
        return f"{render.size(cost.pieces)} (whole: {render.size(cost.bytes)})"
    return render.size(cost.bytes)


def budget_text(found: Budget, *, fleet: bool) -> str:
    """What arms cost: each part of a fleet, and with a real `fleet` the sums."""
    rows = [
        (row.cohort.name, f"{round(row.devices):,}" if fleet else "", _offered(row.release), *_figures(row.costs))
        for row in found.rows
    ]
    header = ("cohort", "devices" if fleet else "", "is offered", "as programs", "as factors", "peak disk")
    table = render.table(header, rows, right={1, 3, 4, 5})
    if not fleet:
        return table
    programs, factors = found.stranded("plain"), found.stranded("factors")
    sums = [
        ("egress as programs", render.size(found.egress("plain"))),
        ("egress as factors", render.size(found.egress("factors"))),
        ("cannot take it", f"{programs:,} as programs, {factors:,} as factors" if programs or factors else "none"),
    ]
    return f"{table}\n\n{render.fields(sums)}"


def _offered(release: int | None) -> str:
    return "what it has" if release is None else f"release {release}"
