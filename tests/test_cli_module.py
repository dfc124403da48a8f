"""The command line on a foundation of any torch module."""

import sys
from pathlib import Path

import pytest

from exporter.module_export import load_module
from exporter.recipe import installed_versions
from registry.service import Registry
from tests.command_line import answer, ptdock, refusal
from tests.exporter.adapters import saved, trained

VIEWS = "tests.exporter.factories:views"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Registry.init(tmp_path / "home").home


def test_a_factory_is_exported_shown_and_takes_adapters(home, tmp_path):
    made = answer(home, "foundation", "export", "--module", VIEWS, "--name", "views", "--structure", "r4:q,o")
    assert made["fresh"]
    assert made["recipe"]["module"] == VIEWS
    assert answer(home, "foundation", "show", "views")["digest"] == made["digest"]

    directory = saved(trained(load_module(VIEWS).root, target_modules=["q", "o"]), tmp_path / "adapter")
    published = answer(home, "adapter", "publish", directory, "--foundation", "views", "--name", "a")
    assert (published["foundation"], published["relinked"]) == (made["digest"], True)
    answer(home, "verify")

    again = ptdock(home, "foundation", "export", "--module", VIEWS, "--name", "views")
    assert again.stdout.startswith("views was exported already: sha256:")
    assert "KV cache" not in again.stdout
    recipe = tmp_path / "recipe.json"
    recipe.write_text(ptdock(home, "foundation", "show", "views", "--json").stdout)
    assert not answer(home, "foundation", "export", "--recipe", recipe, "--name", "views")["fresh"]


def test_an_adapter_of_a_module_is_proven_shown_and_let_into_a_channel_that_insists(home, tmp_path):
    answer(home, "foundation", "export", "--module", VIEWS, "--name", "views")
    directory = saved(trained(load_module(VIEWS).root, target_modules=["q", "o"]), tmp_path / "adapter")
    made = answer(home, "adapter", "publish", directory, "--foundation", "views", "--name", "a", "--prove")
    assert made["proof"]["figures"]["max_error"] < made["proof"]["allowed_error"]
    assert (made["proof"]["self_test"], made["proof"]["probes"]) == (None, 5)
    assert answer(home, "adapter", "prove", "a")["proof"] == made["proof"]
    assert answer(home, "adapter", "show", "a@1.0.0", "--fast")["proof"] == made["proof"]
    text = ptdock(home, "adapter", "show", "a@1.0.0", "--fast").stdout
    assert f"allowed, {made['proof']['figures']['values']} values of 5 probes" in text
    assert "from PEFT" in text

    answer(home, "channel", "create", "careful", "--require-proof")
    answer(home, "release", "create", "--channel", "careful", "--adapter", "a@1.0.0")
    error = refusal(home, "adapter", "prove", "a", "--probes", tmp_path / "prompts.jsonl", code=2)
    assert error["message"] == "a foundation of a module of its own takes no prompts"
    idle = saved(trained(load_module(VIEWS).root, target_modules=["q", "o"], lora_alpha=1e-9), tmp_path / "idle")
    error = refusal(home, "adapter", "publish", idle, "--foundation", "views", "--name", "idle", "--prove", code=7)
    assert error["message"].startswith("idle is no different from the plain base: distance from the reference")
    assert [each["name"] for each in answer(home, "adapter", "list")] == ["a"]


FACTORY = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8)), (torch.randn(2, 8),)
"""


def test_a_proof_whose_factory_is_gone_says_what_to_do(home, tmp_path, monkeypatch):
    package = tmp_path / "here" / f"made_{tmp_path.name.replace('-', '_')}"
    package.mkdir(parents=True)
    (package / "nets.py").write_text(FACTORY)
    spec = f"{package.name}.nets:make"
    monkeypatch.chdir(package.parent)
    answer(home, "foundation", "export", "--module", spec, "--name", "net")
    directory = saved(trained(load_module(spec).root, target_modules=["0"]), tmp_path / "adapter")
    answer(home, "adapter", "publish", directory, "--foundation", "net", "--name", "a")
    answer(home, "adapter", "prove", "a")

    monkeypatch.chdir(tmp_path)
    for name in (package.name, f"{package.name}.nets"):
        sys.modules.pop(name)
    error = refusal(home, "adapter", "prove", "a", code=2)
    assert error["message"] == (
        f"{package.name}.nets cannot be imported: ModuleNotFoundError: No module named '{package.name}'"
    )
    assert error["hint"].endswith(
        f"run ptdock in the directory in which `import {package.name}.nets` works, or put that directory on PYTHONPATH"
    )


def test_a_module_that_an_older_executorch_exported_is_upgraded(home, tmp_path, monkeypatch):
    """An installation says its version in its metadata; one that stands first on the path says an older one."""
    older = tmp_path / "path" / "executorch-1.4.1.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 1.4.1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "path")
        made = answer(home, "foundation", "export", "--module", VIEWS, "--name", "views")
        assert made["base_program"]["executorch"] == "1.4.1"
    said = answer(home, "foundation", "upgrade", "views")
    assert (said["kept"], said["digest"], said["executorch"]) == (
        True,
        made["digest"],
        installed_versions()["executorch"],
    )
    assert [(each["before"], each["made"]) for each in said["templates"]] == [("1.4.1", "same")]
    assert not answer(home, "foundation", "export", "--module", VIEWS, "--name", "views")["fresh"]


def test_a_base_and_a_factory_are_one_too_many_and_none_too_few(home, tmp_path):
    error = refusal(home, "foundation", "export", tmp_path, "--module", VIEWS, "--name", "views", code=2)
    assert error["message"] == "give one of the two: a checkpoint's directory, or --module"
    assert refusal(home, "foundation", "export", "--name", "views", code=2)["message"] == error["message"]


def test_what_is_no_factory_is_one_sentence(home):
    error = refusal(home, "foundation", "export", "--module", "views", "--name", "views", code=2)
    assert (error["message"], error["hint"]) == ("'views' is no factory", "write package.module:factory")
