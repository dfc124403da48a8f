"""What a factory may not answer, and what of it decides which program there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from exporter.foundation import ExportOptions
from exporter.module_export import load_module
from exporter.module_foundation import export_module
from registry.errors import InputError
from registry.service import Registry

X = torch.linspace(-1, 1, 16).reshape(2, 8)


class Net(nn.Module):
    """A linear, and as it is told: a buffer beside it, what it does with that, how it answers."""

    def __init__(self, buffer: torch.Tensor | None = None, computes: str = "y") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.proj, self.computes, self.calls = nn.Linear(8, 8), computes, 0
        if buffer is not None:
            self.register_buffer("kept", buffer, persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.proj(x)
        if self.computes == "counted":
            self.last = y  # tracing would leave a tensor without values here
        if self.computes == "written":
            self.kept[:] = self.kept + y[0]
            return y + self.kept
        forms = {"pair": (y, 2 * y), "named": {"z": y, "a": 2 * y}, "singular": torch.linalg.svd(y)[1], "x": x}
        return forms.get(self.computes, y)


def exits() -> Any:
    sys.exit(3)


def meta() -> Any:
    return Net().to("meta"), (X,)


def lazy() -> Any:
    return nn.LazyLinear(4), (X,)


def sparse() -> Any:
    return Net(torch.eye(8).to_sparse()), (X,)


def complex_() -> Any:
    return Net(torch.ones(8, dtype=torch.complex64)), (X,)


def normed() -> Any:
    module = Net()
    parametrizations.weight_norm(module.proj)
    return module, (X,)


def written() -> Any:
    return Net(torch.full((8,), 5.0), "written"), (X,)


def singular() -> Any:
    return Net(computes="singular"), (X,)


def weightless() -> Any:
    return Net(computes="x"), (X,)


def numbered() -> Any:
    return {"module": Net(), "inputs": (X,), "checkpoint": 3}


def silent() -> Any:
    raise AssertionError


def plain() -> Any:
    return Net(), (X,)


def longer() -> Any:
    return Net(), (X.repeat(2, 1),)


def varying() -> Any:
    return Net(), (X,), ({0: torch.export.Dim("rows", min=2, max=9)},)


def varying_more() -> Any:
    return Net(), (X,), ({0: torch.export.Dim("rows", min=2, max=90)},)


def pair() -> Any:
    return Net(computes="pair"), (X,)


def named() -> Any:
    return Net(computes="named"), (X,)


def counted() -> Any:
    return Net(computes="counted"), (X,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exits", "exits failed: SystemExit: 3"),
        ("silent", "silent failed: AssertionError$"),
        ("meta", r"proj\.weight is a Parameter, meta, .*: expected a dense tensor on the cpu"),
        ("lazy", "weight is a UninitializedParameter, lazy, .*: expected a dense tensor on the cpu"),
        ("sparse", r"kept is a Tensor, cpu, torch\.sparse_coo: expected a dense tensor on the cpu"),
        ("complex_", r"kept is torch\.complex64, which ExecuTorch cannot store densely"),
        ("normed", "proj is parametrized: its weight is computed at each call"),
        ("numbered", "`checkpoint` is a int, expected the path of a directory"),
        ("written", "its module writes to kept, and no program begins with what was there"),
        ("singular", r"ExecuTorch's runtime has no kernel for aten::_linalg_svd\.U"),
        ("weightless", "no output depends on a weight, so there is nothing to share"),
    ],
)
def test_what_no_foundation_can_be_made_of_is_refused_and_nothing_recorded(
    name: str, message: str, tmp_path: Path
) -> None:
    registry = Registry.init(tmp_path / "home")
    with pytest.raises(InputError, match=message):
        export_module(registry, f"{__name__}:{name}", "net", ExportOptions())
    assert registry.foundations() == ()
    assert not list(registry.home.glob("export-*"))


def test_whatever_changes_the_program_is_another_graph_of_the_same_foundation(tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    names = ("plain", "longer", "varying", "varying_more", "pair", "named")
    made = [export_module(registry, f"{__name__}:{name}", "net", ExportOptions()) for name in names]
    assert len({each.foundation.file.digest for each in made}) == 1
    assert len({each.base_program.graph for each in made}) == len(names)
    assert [load_module(f"{__name__}:{name}").graph for name in names] == [each.base_program.graph for each in made]


def test_what_tracing_leaves_in_a_module_does_not_stay_there(tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    assert export_module(registry, f"{__name__}:counted", "net", ExportOptions()).fresh
    source = load_module(f"{__name__}:counted")
    assert source.graph > 0
    assert not hasattr(source.root, "last")
