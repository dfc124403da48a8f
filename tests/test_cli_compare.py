"""`adapter show` and `diff` on a real store: what an adapter does to its base, and what changed between two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.command_line import answer, ptdock, refusal

MODULES = [f"model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)]


def write_adapter(directory: Path, seed: int, **config: Any) -> Path:
    """A random adapter of rank 4 on q_proj of the tiny base; with use_dora it has magnitudes."""
    directory.mkdir()
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"lora_A.weight": (4, 32), "lora_B.weight": (32, 4)}
    if config.get("use_dora"):
        shapes["lora_magnitude_vector"] = (32,)
    tensors = {
        f"base_model.model.{module}.{part}": random.normal(1, 0.3, size=shape).astype(np.float32)
        for module in MODULES
        for part, shape in shapes.items()
    }
    save_file(tensors, directory / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], **config}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory


@pytest.fixture(scope="session")
def published(made_once, exported_home) -> Path:
    """A store with three versions of one adapter: trained again with another alpha, then as DoRA."""

    def make(directory: Path) -> None:
        home = Path(shutil.copytree(exported_home, directory / "home"))
        versions = {"1.0.0": {}, "1.1.0": {"lora_alpha": 32}, "2.0.0": {"use_dora": True}}
        told = (
            ["owner=ann", "figures.loss=1.5"],
            ["owner=ann", "figures.loss=1.25", "base.revision=4a1b"],
            ["run=https://x"],
        )
        for seed, (version, config) in enumerate(versions.items()):
            source = write_adapter(directory / version, seed // 2, **config)
            if version == "1.0.0":
                (source / "README.md").write_text("Ahoy.")
            meta = [word for pair in told[seed] for word in ("--meta", pair)]
            chosen = ("--foundation", "plain", "--name", "pirate", "--version", version, *meta)
            answer(home, "adapter", "publish", source, *chosen)

    return made_once("compare-store", make)


@pytest.fixture
def home(published) -> Path:
    """The store itself: nothing here writes to it."""
    return published / "home"


def weights(bases: Path) -> dict[str, np.ndarray]:
    return load_file(bases / "plain" / "model.safetensors")


def product(directory: Path, module: str, scaling: float) -> np.ndarray:
    tensors = load_file(directory / "adapter_model.safetensors")
    first, second = (tensors[f"base_model.model.{module}.lora_{part}.weight"] for part in "AB")
    return scaling * second.astype(np.float64) @ first


def test_show_measures_each_module_against_the_base(home, published, bases):
    shown = answer(home, "adapter", "show", "pirate@1.0.0")
    assert [each["name"] for each in shown["modules"]] == MODULES
    assert shown["config"]["lora_alpha"] == 8
    for each in shown["modules"]:
        change = product(published / "1.0.0", each["name"], 2)
        base = weights(bases)[f"{each['name']}.weight"]
        values = np.linalg.svd(change, compute_uv=False)
        shares = values[:4] / values[:4].sum()
        assert each["structure"] == {"lora": 4}
        assert each["size"] == 2 * 4 * 32 * 4
        assert each["norm"] == pytest.approx(np.linalg.norm(change), rel=1e-5)
        assert each["relative"] == pytest.approx(np.linalg.norm(change) / np.linalg.norm(base), rel=1e-5)
        assert each["effective_rank"] == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-4)
        assert each["note"] is None


def test_show_is_read_in_a_terminal(home):
    text = ptdock(home, "adapter", "show", "pirate@1.1.0").stdout
    lines = [line.split() for line in text.splitlines()]
    assert ["base.revision", "4a1b"] in lines
    assert ["figures.loss", "1.25"] in lines
    row = next(line for line in lines if line[:2] == ["2", "q_proj"])
    assert row[3] == "%"
    assert row[-2:] == ["2.0", "kB"]
    assert row[-5:-3] != []
    every = ptdock(home, "adapter", "show", "pirate@1.1.0", "--modules").stdout
    assert all(f"\n{module}  " in every for module in MODULES)


def test_show_measures_dora_on_the_weights_that_it_scales(home, published, bases):
    shown = answer(home, "adapter", "show", "pirate@2.0.0")
    for each in shown["modules"]:
        base = weights(bases)[f"{each['name']}.weight"].astype(np.float64)
        tensors = load_file(published / "2.0.0" / "adapter_model.safetensors")
        magnitude = tensors[f"base_model.model.{each['name']}.lora_magnitude_vector"]
        whole = base + product(published / "2.0.0", each["name"], 2)
        scaled = (magnitude / np.linalg.norm(whole, axis=1))[:, None] * whole
        assert each["norm"] == pytest.approx(np.linalg.norm(scaled - base), rel=1e-5)


def test_show_needs_no_weights_to_be_fast_and_does_without_a_lost_foundation(home, tmp_path):
    shown = answer(home, "adapter", "show", "pirate@1.0.0", "--fast")
    assert "modules" not in shown
    assert shown["digest"] == answer(home, "adapter", "show", "pirate@1.0.0")["digest"]
    lost = Path(shutil.copytree(home, tmp_path / "home"))
    (lost / "blobs" / "sha256" / shown["foundation"].removeprefix("sha256:")).unlink()
    (plain, _) = answer(lost, "adapter", "show", "pirate@1.0.0")["modules"]
    assert plain["norm"] > 0
    assert plain["relative"] is None
    assert plain["note"]
    (scaled, _) = answer(lost, "adapter", "show", "pirate@2.0.0")["modules"]
    assert scaled["norm"] is None
    (lost / "blobs" / "sha256" / shown["factors"]["digest"].removeprefix("sha256:")).unlink()
    done = ptdock(lost, "adapter", "show", "pirate@1.0.0", "--json")
    assert (done.exit_code, json.loads(done.stdout)["modules"]) == (0, None)
    assert "no figures" in done.stderr


def test_a_diff_names_what_changed_and_how_far_weights_moved(home, published, bases):
    changed = answer(home, "adapter", "diff", "pirate@1.0.0", "pirate@1.1.0")
    assert not changed["same_program"]
    assert changed["config"] == {"lora_alpha": {"before": 8, "after": 32}}
    assert changed["structure"] == {}
    assert changed["lineage"] == {
        "base": {"after": {"revision": "4a1b"}},
        "figures": {"before": {"loss": 1.5}, "after": {"loss": 1.25}},
    }
    assert changed["files"].keys() == {"README.md", "adapter_config.json"}
    assert len(changed["tensors"].pop("equal")) == 4  # the same factors: only alpha is another
    assert not any(changed["tensors"].values())
    for each in changed["modules"]:
        base = np.linalg.norm(weights(bases)[f"{each['name']}.weight"])
        step = np.linalg.norm(product(published / "1.0.0", each["name"], 8 - 2))
        assert each["moved"]["norm"] == pytest.approx(step, rel=1e-5)
        assert each["moved"]["relative"] == pytest.approx(step / base, rel=1e-5)
        assert each["after"]["norm"] == pytest.approx(4 * each["before"]["norm"], rel=1e-5)
        assert each["after"]["effective_rank"] == pytest.approx(each["before"]["effective_rank"])


def test_a_diff_across_structures_names_modules_and_tensors(home):
    changed = answer(home, "adapter", "diff", "pirate@1.0.0", "pirate@2.0.0")
    assert changed["structure"] == {
        module: {"before": {"lora": 4}, "after": {"lora": 4, "dora": True}} for module in MODULES
    }
    assert changed["tensors"]["added"] == [f"base_model.model.{module}.lora_magnitude_vector" for module in MODULES]
    assert len(changed["tensors"]["changed"]) == 4
    assert changed["config"] == {"use_dora": {"after": True}}
    assert all(each["moved"]["norm"] > 0 for each in changed["modules"])


def test_a_diff_is_read_in_a_terminal(home):
    text = ptdock(home, "adapter", "diff", "pirate@1.0.0", "pirate@2.0.0").stdout
    assert text.startswith("pirate@1.0.0 → pirate@2.0.0\n")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
    assert ["structure", "rank 4 on q_proj (2 modules) → DoRA rank 4 on q_proj (2 modules)"] in lines
    assert ["tensors", "2 added, 4 changed"] in lines
    assert ["modules", "2 changed"] in lines
    words = [line.split() for line in text.splitlines()]
    assert ["config", "use_dora", "(none)", "→", "true"] in words
    assert ["lineage", "figures.loss", "1.5", "→", "(none)"] in words
    assert ["file", "README.md", "removed"] in words


def test_a_version_beside_itself_is_the_same_program(home):
    changed = answer(home, "adapter", "diff", "pirate@1.0.0", "pirate@1.0.0")
    assert changed["same_program"]
    assert [each["moved"]["norm"] for each in changed["modules"]] == [0, 0]
    assert ": the same program, sha256:" in ptdock(home, "adapter", "diff", "pirate@1.0.0", "pirate@1.0.0").stdout


def test_a_diff_on_a_foundation_that_one_of_them_lacks_is_refused(home):
    error = refusal(home, "adapter", "diff", "pirate@1.0.0", "pirate@1.1.0", "--foundation", "tied", code=5)
    assert error["message"] == "pirate@1.0.0 has no build on that foundation"
    assert refusal(home, "adapter", "diff", "pirate@1.0.0", "pirate@7.0.0", code=5)["code"] == "NotFound"


def test_versions_on_different_foundations_are_compared_without_their_weights(home, tmp_path):
    own = Path(shutil.copytree(home, tmp_path / "home"))
    source = write_adapter(tmp_path / "other", seed=9)
    answer(own, "adapter", "publish", source, "--foundation", "tied", "--name", "corsair")
    changed = answer(own, "adapter", "diff", "pirate@1.0.0", "corsair@1.0.0")
    assert changed["notes"] == ["no foundation in common: their weights are not compared"]
    assert [each["moved"] for each in changed["modules"]] == [None, None]
    assert all(each["after"]["relative"] > 0 for each in changed["modules"])
    assert len(changed["tensors"]["changed"]) == 4
