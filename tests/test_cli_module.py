"""The command line on a foundation of any torch module."""

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
    unproven = refusal(home, "adapter", "prove", "a@1.0.0", code=2)
    assert unproven["message"] == "a@1.0.0 stands on a module of its own, not on a text model"
    assert "compare its program with PEFT on your own inputs" in unproven["hint"]

    again = ptdock(home, "foundation", "export", "--module", VIEWS, "--name", "views")
    assert again.stdout.startswith("views was exported already: sha256:")
    assert "KV cache" not in again.stdout
    recipe = tmp_path / "recipe.json"
    recipe.write_text(ptdock(home, "foundation", "show", "views", "--json").stdout)
    assert not answer(home, "foundation", "export", "--recipe", recipe, "--name", "views")["fresh"]


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
