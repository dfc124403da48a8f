"""A machine without torch, as a real process: what it can do there, and what it says of the rest."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.command_line import answer, refusal

ROOT = Path(__file__).resolve().parent.parent
HIDE = """
import sys
from importlib.machinery import PathFinder

HIDDEN = {"torch", "torchao", "executorch", "transformers", "peft"}


class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *context):
        return (each for each in PathFinder.find_distributions(*context) if each.metadata["Name"] not in HIDDEN)


sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


def write_adapter(directory: Path, target: str) -> Path:
    """A random adapter of rank 4 on one projection of the tiny base."""
    directory.mkdir()
    random = np.random.default_rng(3)
    outputs = 32 if target == "q_proj" else 16
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.{target}.{part}.weight": random.normal(size=shape)
        for layer in (0, 1)
        for part, shape in {"lora_A": (4, 32), "lora_B": (outputs, 4)}.items()
    }
    save_file({name: each.astype("float32") for name, each in tensors.items()}, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": [target]}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def ahead(made_once, exported_home, bases) -> Path:
    """A store with a template made ahead, for rank 4 on q_proj, and what the export answered."""

    def make(directory: Path) -> None:
        home = Path(shutil.copytree(exported_home, directory / "home"))
        chosen = ("--name", "plain", "--context", 64, "--structure", "r4:q_proj")
        made = answer(home, "foundation", "export", bases / "plain", *chosen)
        (home / "answer.json").write_text(json.dumps(made))

    return made_once("templates-ahead", make) / "home"


@pytest.fixture
def home(ahead, tmp_path) -> Path:
    return Path(shutil.copytree(ahead, tmp_path / "home"))


def without_torch(tmp_path: Path, *words: object) -> tuple[int, Any]:
    """Run one command line where torch and its kin are not installed: its exit code and its document."""
    (tmp_path / "hide").mkdir(exist_ok=True)
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "hide"), str(ROOT)])}
    command = [sys.executable, "-m", "cli", *map(str, words), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_this_way_of_hiding_torch_hides_it(home, tmp_path):
    code, said = without_torch(
        tmp_path, "--home", home, "foundation", "export", "--module", "tests.exporter.factories:bert", "--name", "x"
    )
    assert (code, said["error"]["code"]) == (8, "Unavailable")
    assert "torch" in said["error"]["message"]


def test_an_export_makes_the_templates_that_it_is_asked_for(home):
    made = json.loads((home / "answer.json").read_text())
    assert [each["description"] for each in made["templates"]] == ["rank 4 on q_proj (2 modules)"]
    assert answer(home, "template", "list", "--foundation", "plain")[-1] == made["templates"][0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [("r4", "'r4' is not a structure"), ("r4:q_prj", "is named 'q_prj'")],
)
def test_a_structure_that_means_nothing_is_refused_in_words(home, bases, spec, message):
    for words in (
        ("foundation", "export", bases / "plain", "--name", "plain", "--context", 64),
        ("template", "add", "--foundation", "plain"),
    ):
        assert message in refusal(home, *words, "--structure", spec, code=2)["message"]
    never = refusal(home, "foundation", "export", bases / "biased", "--name", "again", "--structure", "r4", code=2)
    assert never["message"] == "'r4' is not a structure"


def test_a_known_structure_is_published_and_checked(home, tmp_path):
    adapter = write_adapter(tmp_path / "known", "q_proj")
    code, published = without_torch(
        tmp_path, "--home", home, "adapter", "publish", adapter, "--foundation", "plain", "--name", "known"
    )
    assert (code, published["relinked"], published["outcome"]) == (0, True, "version")
    assert (
        answer(home, "adapter", "publish", adapter, "--foundation", "plain", "--name", "same")["digest"]
        == (published["digest"])
    )


def test_a_trainer_checks_with_a_card_alone(home, tmp_path):
    card = tmp_path / "card.json"
    assert answer(home, "foundation", "show", "plain", "--card", card)["size"] < 1_000_000
    for target, exists in (("q_proj", True), ("v_proj", False)):
        adapter = write_adapter(tmp_path / target, target)
        nowhere = tmp_path / "nowhere"
        code, checked = without_torch(tmp_path, "--home", nowhere, "adapter", "check", adapter, "--foundation", card)
        assert (code, checked["accepted"], checked["template"]) == (0, True, exists)
        assert checked["spec"] == f"r4:{target}"
        assert not nowhere.exists()


def test_the_error_of_an_unknown_structure_names_the_known_ones_and_the_command_that_helps(home, tmp_path):
    adapter = write_adapter(tmp_path / "unknown", "v_proj")
    publish = ("--home", home, "adapter", "publish", adapter, "--foundation", "plain", "--name", "unknown")
    code, said = without_torch(tmp_path, *publish)
    error = said["error"]
    assert (code, error["code"]) == (8, "Unavailable")
    assert error["message"] == (
        "structure not exported yet: rank 4 on v_proj (2 modules), context 64; "
        "known here: rank 4 on q_proj (2 modules), context 64"
    )
    command = "ptdock template add --foundation plain --structure r4:v_proj --context 64"
    assert f"`{command}`" in error["hint"]
    assert error["values"]["command"] == command
    assert [each["name"] for each in answer(home, "adapter", "list")] == []

    answer(home, *shlex.split(command)[1:])  # where torch is
    code, published = without_torch(tmp_path, *publish)
    assert (code, published["relinked"]) == (0, True)


def test_a_template_is_not_added_without_torch_but_a_known_one_is_answered(home, tmp_path):
    add = ("--home", home, "template", "add", "--foundation", "plain", "--structure")
    code, said = without_torch(tmp_path, *add, "r4:q_proj")
    assert (code, said["description"]) == (0, "rank 4 on q_proj (2 modules)")
    code, said = without_torch(tmp_path, *add, "r4+dora:k_proj")
    assert code == 8
    assert "--structure r4+dora:k_proj --context 64`" in said["error"]["hint"]


def test_a_base_is_pinned_and_versions_are_shown_and_compared(home, bases, tmp_path):
    pinned = answer(home, "foundation", "show", "plain")["base"]
    code, said = without_torch(tmp_path, "base", "fingerprint", bases / "plain", "--out", tmp_path / "ptdock.json")
    assert (code, said["base"]) == (0, pinned)
    adapter = write_adapter(tmp_path / "known", "q_proj")
    answer(home, "adapter", "publish", adapter, "--foundation", "plain", "--name", "known")
    for words in (("show", "known@1.0.0"), ("diff", "known@1.0.0", "known@1.0.0")):
        code, said = without_torch(tmp_path, "--home", home, "adapter", *words)
        assert (code, len(said["modules"])) == (0, 2)
