"""The command line proves builds, shows proofs, and insists on them where a channel does."""

import json
import shutil
from pathlib import Path

import pytest

from tests.command_line import answer, ptdock, refusal
from tests.test_cli_store import blob, digest_of, write_adapter


@pytest.fixture
def home(exported_home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported_home, tmp_path / "home"))


def publish(home: Path, directory: Path, *words: object) -> dict:
    return answer(home, "adapter", "publish", directory, "--foundation", "plain", "--name", "pirate", *words)


def test_a_build_is_proven_shown_and_let_into_a_channel_that_insists(home, tmp_path):
    published = publish(home, write_adapter(tmp_path / "a", seed=1))
    assert published["proof"] is None
    answer(home, "channel", "create", "careful", "--require-proof")
    error = refusal(home, "release", "create", "--channel", "careful", "--adapter", "pirate@1.0.0", code=6)
    assert error["message"] == "this channel takes proven builds only; not proven: pirate@1.0.0"
    assert error["hint"].startswith("ptdock adapter prove pirate@1.0.0 --foundation sha256:")

    proven = answer(home, *error["hint"].split()[1:])
    assert proven["digest"] == published["digest"]
    assert proven["proof"]["figures"]["max_error"] < proven["proof"]["allowed_error"]
    shown = answer(home, "adapter", "show", "pirate@1.0.0", "--fast")
    assert shown["proof"] == proven["proof"]
    text = ptdock(home, "adapter", "show", "pirate@1.0.0", "--fast").stdout
    assert "largest error" in text
    assert "100% of the answers agree" in text
    answer(home, "release", "create", "--channel", "careful", "--adapter", "pirate@1.0.0")


def test_publish_proves_before_it_records_anything(home, tmp_path):
    idle = write_adapter(tmp_path / "idle", seed=1, lora_alpha=1e-9)
    error = refusal(home, "adapter", "publish", idle, "--foundation", "plain", "--name", "pirate", "--prove", code=7)
    assert error["message"].startswith("pirate is no different from the plain base: distance from the reference")
    assert error["values"]["figures"]["distance_from_base"] < 1e-5
    assert answer(home, "adapter", "list") == []

    lines = [{"prompt": "w1 w2", "completion": "w3"}, {"prompt": "w7"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = publish(home, write_adapter(tmp_path / "b", seed=2), "--prove", "--probes", tmp_path / "p.jsonl")
    assert made["proof"]["probes"] >= 2
    assert "loss_of_base" in made["proof"]["figures"]
    again = ptdock(home, "adapter", "publish", tmp_path / "b", "--foundation", "plain", "--name", "pirate")
    assert again.stdout.startswith("pirate@1.0.0 was published already:")
    assert "mean loss" in again.stdout


def test_a_proof_of_nothing_and_probes_that_are_none_are_one_sentence(home, tmp_path):
    assert refusal(home, "adapter", "prove", "nobody", code=5)["message"] == "no adapter 'nobody'"
    publish(home, write_adapter(tmp_path / "a", seed=1))
    error = refusal(home, "adapter", "prove", "pirate", "--probes", tmp_path / "none.jsonl", code=2)
    assert error["message"].endswith("none.jsonl: No such file or directory")


def test_probes_are_read_before_the_checkpoint_is_looked_for_and_before_a_structure_is_exported(home, tmp_path):
    publish(home, write_adapter(tmp_path / "a", seed=1))
    (tmp_path / "p.jsonl").write_text("")
    chosen = ("--probes", tmp_path / "p.jsonl", "--base", tmp_path / "gone")
    error = refusal(home, "adapter", "prove", "pirate", *chosen, code=2)
    assert error["message"].endswith("p.jsonl: 0 probes, expected 1 to 256")
    other = write_adapter(tmp_path / "b", seed=2, rank=3)
    named = ("--foundation", "plain", "--name", "other")
    assert refusal(home, "adapter", "publish", other, *named, *chosen, code=2)["message"] == error["message"]


def test_a_checkpoint_whose_config_means_something_else_proves_and_exports_nothing(home, bases, tmp_path):
    publish(home, write_adapter(tmp_path / "a", seed=1))
    base = Path(shutil.copytree(bases / "plain", tmp_path / "base"))
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5, "transformers_version": "9"}))
    error = refusal(home, "adapter", "prove", "pirate", "--base", base, code=6)
    assert error["message"].endswith("than when the foundation was exported: rms_norm_eps")
    other = write_adapter(tmp_path / "b", seed=2, rank=3)
    named = ("--foundation", "plain", "--name", "other", "--base", base)
    assert refusal(home, "adapter", "publish", other, *named, code=6)["message"] == error["message"]
    (base / "config.json").write_text(json.dumps({**config, "transformers_version": "9"}))
    assert answer(home, "adapter", "prove", "pirate", "--base", base)["proof"]["figures"]["greedy_agreement"] == 1


def test_all_that_a_channel_misses_are_proven_by_the_one_command_of_its_hint(home, tmp_path):
    for seed, name in enumerate(("one", "two")):
        directory = write_adapter(tmp_path / name, seed=seed)
        answer(home, "adapter", "publish", directory, "--foundation", "plain", "--name", name)
    answer(home, "channel", "create", "careful", "--require-proof")
    chosen = ("--channel", "careful", "--adapter", "one@1.0.0", "--adapter", "two@1.0.0")
    hint = refusal(home, "release", "create", *chosen, code=6)["hint"]
    assert hint.startswith("ptdock adapter prove one@1.0.0 two@1.0.0 --foundation sha256:")
    proven = answer(home, *hint.split()[1:])
    assert [each["name"] for each in proven] == ["one", "two"]
    assert proven[0]["proof"]["digest"] != proven[1]["proof"]["digest"]
    answer(home, "release", "create", *chosen)
    assert refusal(home, "adapter", "prove", "one", "nobody", code=5)["message"] == "no adapter 'nobody'"


def test_a_damaged_file_is_said_to_be_damaged_not_that_its_program_is_wrong(home, tmp_path):
    made = publish(home, write_adapter(tmp_path / "a", seed=1))
    for file in (made["digest"], digest_of(tmp_path / "a" / "adapter_model.safetensors"), made["foundation"]):
        damaged = blob(home, file)
        whole = damaged.read_bytes()
        damaged.chmod(0o644)
        damaged.write_bytes(whole[:-8] + bytes(8))
        assert refusal(home, "adapter", "prove", "pirate", code=7)["message"].startswith(f"blob {file} is damaged")
        damaged.write_bytes(whole)
    assert answer(home, "adapter", "prove", "pirate")["digest"] == made["digest"]
