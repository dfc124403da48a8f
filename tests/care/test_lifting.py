"""Rebasing adapters onto another foundation of their base, the matrix of builds, and what separates foundations."""

import json
import shutil
from pathlib import Path

import pytest

from exporter.stored import compare
from registry.errors import Conflict, InputError, NotFound
from registry.service import Registry
from tests.care.adapters import write_adapter
from tests.command_line import answer, ptdock, refusal


@pytest.fixture(scope="session")
def lifted_home(made_once, offering_home, bases) -> Path:
    """The store with the same base as a foundation of F16, `half`, on which pirate was rebased; and what was said."""

    def make(directory: Path) -> None:
        home = Path(shutil.copytree(offering_home / "home", directory / "home"))
        answer(home, "foundation", "export", bases / "plain", "--name", "half", "--dtype", "fp16", "--context", 64)
        said = answer(home, "adapter", "rebase", "--from", "plain", "--to", "half", "pirate")
        (directory / "said.json").write_text(json.dumps(said))

    return made_once("lifted-home", make)


@pytest.fixture
def home(lifted_home, tmp_path) -> Path:
    return Path(shutil.copytree(lifted_home / "home", tmp_path / "home"))


@pytest.fixture
def registry(home) -> Registry:
    return Registry.open(home, actor="tester")


def rebase(home: Path, *words: object) -> dict:
    return answer(home, "adapter", "rebase", "--from", "plain", "--to", "half", *words)


def test_a_selection_is_built_under_its_own_versions(lifted_home, registry):
    said = json.loads((lifted_home / "said.json").read_text())
    half = registry.foundation("half").file.digest
    build = registry.build("pirate@1.0.0", half)

    assert (said["from"], said["to"]) == (str(registry.foundation("plain").file.digest), str(half))
    assert (said["built"], said["unchanged"], said["skipped"], said["refused"]) == (1, 0, 0, 0)
    (step,) = said["adapters"]
    assert (step["name"], step["version"], step["digest"]) == ("pirate", "1.0.0", str(build.file.digest))
    assert [each.foundation for each in registry.builds("pirate@1.0.0")][1] == half
    assert [each.version for each in registry.versions("pirate")] == ["1.0.0"]
    assert compare(registry, build, rebuild_too=True).sound


def test_all_are_built_and_what_is_there_is_passed_over(home, registry):
    first, second = rebase(home), rebase(home)

    assert {(each["name"], each["outcome"]) for each in first["adapters"]} == {
        ("json", "built"),
        ("pirate", "unchanged"),
    }
    assert (second["built"], second["unchanged"]) == (0, 2)
    assert registry.build("json", "half").file.size > 0
    answer(home, "release", "create", "--channel", "stable", "--adapter", "pirate@1.0.0", "--adapter", "json@1.0.0")
    lines = registry.release(2).lines
    assert [line.foundation for line in lines] == [registry.foundation(name).file.digest for name in ("half", "plain")]


def test_what_nobody_should_run_is_not_brought_back(home, registry):
    registry.yank("json@1.0.0", "too loud")
    assert rebase(home, "json")["adapters"][0]["reason"] == "yanked: too loud"
    registry.unyank("json@1.0.0")
    registry.revoke("json@1.0.0", "leaks")

    done = ptdock(home, "adapter", "rebase", "--from", "plain", "--to", "half", "json")

    assert (done.exit_code, done.stdout) == (0, "1 skipped\n")
    assert "skipped  json@1.0.0: revoked" in done.stderr
    with pytest.raises(NotFound):
        registry.build("json@1.0.0", "half")


def test_a_refusal_is_told_and_does_not_stop_the_others(home, tmp_path):
    """70000 fits into F32 and not into F16: the gate refuses it on the new foundation alone."""
    source = write_adapter(tmp_path / "loud", 3, wide=True, lora_alpha=4 * 10**6)
    answer(home, "adapter", "publish", source, "--foundation", "plain", "--name", "loud")

    done = ptdock(home, "adapter", "rebase", "--from", "plain", "--to", "half", "--json")

    said = json.loads(done.stdout)
    assert done.exit_code == 4
    assert (said["built"], said["unchanged"], said["refused"]) == (1, 1, 1)
    loud = next(each for each in said["adapters"] if each["name"] == "loud")
    assert "overflows F16" in loud["reason"]
    assert {finding["code"] for finding in loud["findings"] if finding["level"] == "error"} == {"overflow"}


def test_a_source_that_is_lost_is_told(home, registry):
    model = registry.source(registry.version("json@1.0.0")).files["adapter_model.safetensors"]
    registry.blobs.path(model.digest).unlink()

    done = ptdock(home, "adapter", "rebase", "--from", "plain", "--to", "half", "--json")

    assert done.exit_code == 4
    assert "holds no blob" in json.loads(done.stdout)["adapters"][0]["reason"]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("--from", "plain", "--to", "plain"), InputError, "is both foundations"),
        (("--from", "plain", "--to", "tied"), Conflict, "of different bases"),
        (("--from", "half", "--to", "plain", "json"), NotFound, "json has no build on"),
        (("--from", "plain", "--to", "half", "nobody"), NotFound, "no adapter 'nobody'"),
        (("--from", "plain", "--to", "nothing"), NotFound, "no foundation 'nothing'"),
    ],
)
def test_what_can_never_be_rebased_is_refused_first(home, registry, words, error, message):
    before = registry.events()

    said = refusal(home, "adapter", "rebase", *words, code=error.exit_code)

    assert message in said["message"]
    assert registry.events() == before


def test_coverage_is_the_matrix_of_versions_and_foundations(home, registry):
    half, plain = (str(registry.foundation(name).file.digest) for name in ("half", "plain"))
    registry.yank("json@1.0.0", "too loud")

    found = answer(home, "foundation", "coverage")

    assert {each["digest"]: each["names"] for each in found["foundations"]}[half] == ["half"]
    assert {each["name"]: (each["builds"], each["yanked"]) for each in found["versions"]} == {
        "json": ({plain: "built"}, "too loud"),
        "pirate": ({plain: "built", half: "built"}, None),
    }
    registry.revoke("pirate@1.0.0", "leaks", "half")
    (pirate,) = answer(home, "foundation", "coverage", "pirate")["versions"]
    assert pirate["builds"] == {plain: "built", half: "revoked"}
    header, json_row, pirate_row = ptdock(home, "foundation", "coverage").stdout.splitlines()
    columns = {name: header.index(name) for name in ("plain", "half")}
    assert json_row[columns["half"] :].startswith("-")
    assert json_row.endswith("yanked: too loud")
    assert pirate_row[columns["half"] :].startswith("revoked")
    assert pirate_row[columns["plain"] :].startswith("built")


def test_coverage_can_be_of_what_is_missing(home, registry):
    for name in ("tied", "biased"):
        registry.remove_foundation(name)

    (missing,) = answer(home, "foundation", "coverage", "--missing")["versions"]

    assert missing["name"] == "json"
    assert "no adapter" in refusal(home, "foundation", "coverage", "nobody", code=5)["message"]


def test_foundations_differ_by_the_tensors_that_differ(home, registry):
    """Biased is plain with six biases in each layer: the seeded weights before them are the same."""
    found = answer(home, "foundation", "diff", "plain", "half")

    assert not found["same"]
    assert {change["dtype"] for change in found["changed"]} == {"F16"}
    assert {change["before"]["dtype"] for change in found["changed"]} == {"F32"}
    names = {name for change in found["changed"] for name in change["names"]}
    assert "model.embed_tokens.weight" in names
    assert found["update_bytes"] > 0.9 * sum(change["size"] for change in found["changed"])
    assert found["size"] == registry.foundation("half").file.size


def test_a_foundation_differs_in_nothing_from_itself(home):
    found = answer(home, "foundation", "diff", "plain", "plain")

    assert found["same"]
    assert (found["changed"], found["added"], found["removed"], found["update_bytes"]) == ([], [], [], 0)
    assert ptdock(home, "foundation", "diff", "plain", "plain").stdout.startswith(
        "no tensor differs; an update fetches 0 B"
    )


def test_tensors_that_only_one_has_are_told(home):
    found = answer(home, "foundation", "diff", "plain", "biased")

    added = {name for each in found["added"] for name in each["names"]}
    assert "model.layers.0.self_attn.q_proj.bias" in added
    text = ptdock(home, "foundation", "diff", "plain", "biased").stdout
    assert "model.layers.0.self_attn.q_proj.bias" in text
    assert "added" in text


def test_a_foundation_shows_what_would_lose_it(home):
    shown = answer(home, "foundation", "show", "plain")

    assert shown["dependants"] == ["adapter json@1.0.0", "adapter pirate@1.0.0", "release 1"]
    assert "used by" in ptdock(home, "foundation", "show", "plain").stdout
    assert answer(home, "foundation", "show", "tied")["dependants"] == []


def test_the_recipe_of_another_dtype_makes_that_foundation_again(home, bases, tmp_path):
    shown = answer(home, "foundation", "show", "half")
    (tmp_path / "recipe.json").write_text(json.dumps(shown))
    words = ("--name", "again", "--context", 64, "--recipe", tmp_path / "recipe.json")
    made = answer(home, "foundation", "export", bases / "plain", *words)
    assert (made["fresh"], made["digest"], made["recipe"]["dtype"]) == (False, shown["digest"], "F16")
