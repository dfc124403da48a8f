"""The command line on a real store with a tiny foundation: publish, release, sync, run, unpack, withdraw, verify."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from registry.digest import Digest
from tests.command_line import answer, ptdock, refusal


def write_adapter(directory: Path, seed: int, rank: int = 4, width: int = 32, **config: object) -> Path:
    """A random LoRA adapter on q_proj of both layers of the tiny base."""
    directory.mkdir()
    random = np.random.default_rng(seed)
    shapes = {"lora_A": (rank, width), "lora_B": (32, rank)}
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight": random.normal(size=shape)
        for layer in (0, 1)
        for part, shape in shapes.items()
    }
    save_file(
        {name: value.astype("float32") for name, value in tensors.items()}, directory / "adapter_model.safetensors"
    )
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"], **config}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory


def digest_of(path: Path) -> str:
    return str(Digest.of_file(path))


def blob(home: Path, digest: str) -> Path:
    return home / "blobs" / "sha256" / digest.removeprefix("sha256:")


@pytest.fixture(scope="session")
def exported(made_once, exported_home, bases) -> Path:
    """A store with the foundation `plain` and the version pirate@1.0.0, and what the two commands answered."""

    def make(directory: Path) -> None:
        home = Path(shutil.copytree(exported_home, directory / "home"))
        source = write_adapter(directory / "pirate", seed=1)
        foundation = answer(home, "foundation", "export", bases / "plain", "--name", "plain", "--context", 64)
        chosen = ("--foundation", "plain", "--name", "pirate", "--version", "1.0.0", "--meta", "owner=ann")
        version = answer(home, "adapter", "publish", source, *chosen)
        (directory / "answers.json").write_text(json.dumps([foundation, version]))

    return made_once("cli-store", make)


@pytest.fixture
def home(exported, tmp_path) -> Path:
    return Path(shutil.copytree(exported / "home", tmp_path / "home"))


@pytest.fixture
def answers(exported) -> tuple[dict, dict]:
    return tuple(json.loads((exported / "answers.json").read_text()))


@pytest.fixture
def offering(home, tmp_path) -> Path:
    """The store, whose channel `stable` offers pirate@1.0.0 and json@1.0.0."""
    publish(home, write_adapter(tmp_path / "json", seed=2), "json", "1.0.0")
    answer(home, "channel", "create", "stable")
    release(home, "pirate@1.0.0", "json@1.0.0")
    return home


def publish(home, directory, name, version=None):
    chosen = ("--version", version) if version else ()
    return answer(home, "adapter", "publish", directory, "--foundation", "plain", "--name", name, *chosen)


def release(home, *refs):
    chosen = [word for ref in refs for word in ("--adapter", ref)]
    return answer(home, "release", "create", "--channel", "stable", *chosen)


def test_an_export_answers_the_digest_and_the_size_of_the_ptd(home, answers):
    made, _ = answers
    file = blob(home, made["digest"])
    assert made["name"] == "plain"
    assert made["digest"] == digest_of(file)
    assert made["size"] == file.stat().st_size
    assert made["base_program"]["context"] == 64


def test_an_export_that_is_recorded_is_not_repeated_and_may_get_another_name(home, bases, answers):
    again = answer(home, "foundation", "export", bases / "plain", "--name", "tiny", "--context", 64)
    assert not again["fresh"]
    assert again["digest"] == answers[0]["digest"]
    assert again["names"] == ["plain", "tiny"]


def test_a_foundation_is_shown_by_name_and_by_digest(home, answers):
    digest = answers[0]["digest"]
    shown = answer(home, "foundation", "show", "plain")
    assert shown["digest"] == digest
    assert shown["size"] == answers[0]["size"]
    data = blob(home, digest).read_bytes()
    for tensor in shown["tensors"]:
        assert Digest.of(data[tensor["offset"] :][: tensor["size"]]) == Digest.parse(tensor["digest"])
    assert len(shown["tensors"]) == shown["tensor_count"] == answers[0]["tensor_count"]
    assert answer(home, "foundation", "show", digest) == shown
    assert digest in [each["digest"] for each in answer(home, "foundation", "list")]
    text = ptdock(home, "foundation", "show", "plain", "--tensors").stdout
    assert "lm_head.weight" in text
    assert digest in text
    made = {name: (each["derive"], each["from"]) for each in shown["tensors"] for name in each["names"]}
    assert made["model.norm.weight"] == ("copy", "model.norm.weight")
    assert made["model.rotary.0.inv_freq"] == ("constant", None)
    assert re.search(r"model\.norm\.weight +F32 +\[32\] +copy +128 B", text)


def test_a_publish_answers_the_digest_and_the_size_of_the_pte(home, answers):
    foundation, version = answers
    file = blob(home, version["digest"])
    assert (version["name"], version["version"]) == ("pirate", "1.0.0")
    assert version["digest"] == digest_of(file)
    assert version["size"] == file.stat().st_size
    assert version["foundation"] == foundation["digest"]
    assert not version["relinked"]
    assert any("base not pinned" in warning for warning in version["warnings"])


def test_show_answers_what_publish_answered(home, answers):
    shown = answer(home, "adapter", "show", "pirate@1.0.0")
    same = ("name", "version", "digest", "size", "foundation", "warnings", "structure", "source", "lineage")
    assert {key: shown[key] for key in same} == {key: answers[1][key] for key in same}
    assert shown["lineage"] == {"owner": "ann"}
    assert sorted(shown["files"]) == ["adapter_config.json", "adapter_model.safetensors"]
    assert answer(home, "adapter", "show", "pirate") == shown


def test_a_further_adapter_of_a_structure_is_relinked(home, tmp_path, answers):
    made = publish(home, write_adapter(tmp_path / "json", seed=2), "json")
    assert made["relinked"]
    assert made["version"] == "1.0.0"
    assert made["template"] == answers[1]["template"]
    assert made["digest"] != answers[1]["digest"]
    assert [(each["name"], each["version"]) for each in answer(home, "adapter", "list")] == [
        ("json", "1.0.0"),
        ("pirate", "1.0.0"),
    ]


def test_publishing_the_same_again_changes_nothing_and_another_source_is_refused(home, exported, tmp_path, answers):
    again = publish(home, exported / "pirate", "pirate", "1.0.0")
    assert again["outcome"] == "unchanged"
    assert again["digest"] == answers[1]["digest"]
    other = write_adapter(tmp_path / "other", seed=3)
    chosen = ("--foundation", "plain", "--name", "pirate", "--version", "1.0.0")
    error = refusal(home, "adapter", "publish", other, *chosen, code=6)
    assert "immutable" in error["message"]
    assert publish(home, other, "pirate")["version"] == "1.0.1"


def test_a_used_version_is_refused_before_a_new_structure_is_exported(home, tmp_path):
    other = write_adapter(tmp_path / "other", seed=3, rank=2)
    chosen = ("--foundation", "plain", "--name", "pirate", "--version", "1.0.0", "--base", tmp_path / "nowhere")
    error = refusal(home, "adapter", "publish", other, *chosen, code=6)
    assert error["message"] == "pirate@1.0.0 is immutable: it was made from another source"


def test_a_refused_adapter_lists_all_findings_and_leaves_no_trace(home, tmp_path):
    bad = write_adapter(tmp_path / "bad", seed=4, width=24, use_qalora=True)
    before = answer(home, "log")
    error = refusal(home, "adapter", "publish", bad, "--foundation", "plain", "--name", "bad", code=4)
    codes = [finding["code"] for finding in error["values"]["findings"] if finding["level"] == "error"]
    assert "unsupported-field" in codes
    assert len(codes) > 1
    said = ptdock(home, "adapter", "publish", bad, "--foundation", "plain", "--name", "bad").stderr
    assert "use_qalora" in said
    assert "24" in said
    assert answer(home, "log") == before


def test_check_says_the_same_with_a_store_and_with_a_card(home, exported, tmp_path):
    card = tmp_path / "card.json"
    written = answer(home, "foundation", "show", "plain", "--card", card)
    assert written["digest"] == digest_of(card)
    with_store = answer(home, "adapter", "check", exported / "pirate", "--foundation", "plain")
    with_card = answer(tmp_path / "no-store", "adapter", "check", exported / "pirate", "--foundation", card)
    assert with_card == with_store
    assert with_store["accepted"]
    assert with_store["structure"] == "rank 4 on q_proj (2 modules)"


def test_check_exits_with_4_when_it_would_refuse(home, tmp_path):
    bad = write_adapter(tmp_path / "bad", seed=4, width=24)
    done = ptdock(home, "adapter", "check", bad, "--foundation", "plain", "--json")
    assert done.exit_code == 4
    assert not json.loads(done.stdout)["accepted"]
    assert ptdock(home, "adapter", "check", bad, "--foundation", "plain").stdout.endswith("refused\n")


def test_a_pinned_base_is_no_longer_warned_of(home, bases, tmp_path, answers):
    adapter = write_adapter(tmp_path / "pinned", seed=5)
    pinned = answer(home, "base", "fingerprint", bases / "plain", "--out", adapter, "--meta", "run=https://x")
    assert pinned["base"] == answers[0]["base"]
    assert json.loads((adapter / "ptdock.json").read_text())["base"] == pinned["base"]
    made = publish(home, adapter, "pinned")
    assert "base-not-pinned" not in [finding["code"] for finding in made["findings"]]
    assert made["lineage"]["run"] == "https://x"
    handed = write_adapter(tmp_path / "handed", seed=6)
    chosen = ("--foundation", "plain", "--base-fingerprint", pinned["base"])
    findings = answer(home, "adapter", "check", handed, *chosen)["findings"]
    assert "base-not-pinned" not in [finding["code"] for finding in findings]


def test_a_pin_of_another_base_is_replaced_only_by_force(home, bases, tmp_path):
    pin = tmp_path / "ptdock.json"
    other = f"sha256:{'0' * 64}"
    pin.write_text(json.dumps({"schema": 1, "base": other, "lineage": {"owner": "ann"}}))
    error = refusal(home, "base", "fingerprint", bases / "plain", "--out", tmp_path, code=6)
    assert error["values"]["expected"] == other
    forced = answer(home, "base", "fingerprint", bases / "plain", "--out", tmp_path, "--force")
    assert forced["lineage"] == {"owner": "ann"}
    assert json.loads(pin.read_text())["base"] == forced["base"] != other


def test_a_manifest_is_answered_byte_for_byte(offering):
    served = (offering / "site" / "targets" / "v1" / "stable.json").read_bytes()
    assert ptdock(offering, "manifest", "stable").stdout_bytes == served
    assert ptdock(offering, "manifest", "stable", "--json").stdout_bytes == served
    release(offering, "pirate@1.0.0")
    assert ptdock(offering, "manifest", "stable", "--sequence", 1).stdout_bytes == served
    assert answer(offering, "manifest", "stable")["sequence"] == 2


def test_a_release_and_its_channel_are_shown(offering):
    made = release(offering, "pirate@1.0.0")
    assert (made["release"], made["channel"], made["sequence"]) == (2, "stable", 2)
    shown = answer(offering, "release", "show", 2)
    assert shown == {key: made[key] for key in shown}
    assert [each["name"] for each in shown["lines"][0]["adapters"]] == ["pirate"]
    assert [each["release"] for each in answer(offering, "release", "list")] == [1, 2]
    text = ptdock(offering, "channel", "show", "stable").stdout
    assert "release 2  ████████████████████████    100 %" in text


def test_a_release_that_lets_adapters_go_says_so_unless_they_were_dropped_by_name(offering):
    chosen = ("--channel", "stable", "--adapter", "pirate@1.0.0")
    said = ptdock(offering, "release", "create", *chosen, "--dry-run").output
    assert "release 2 is without json, which release 1 has: devices will drop" in said
    assert "is without json" in ptdock(offering, "release", "create", *chosen).stderr
    chosen = ("--channel", "stable", "--base", "1", "--drop", "pirate")
    assert "is without" not in ptdock(offering, "release", "create", *chosen).stderr


def test_a_share_is_a_part_of_the_bar(offering):
    chosen = ("--channel", "stable", "--adapter", "pirate@1.0.0", "--share", "25%")
    assert answer(offering, "release", "create", *chosen)["arms"][0]["share_bp"] == 2500
    text = ptdock(offering, "channel", "show", "stable").stdout
    assert f"release 2  {'█' * 6}{'░' * 18}     25 %" in text
    assert f"release 1  {'█' * 18}{'░' * 6}     75 %" in text


def test_a_line_with_holes_is_refused_with_the_matrix(offering):
    chosen = ("--channel", "stable", "--adapter", "pirate@1.0.0", "--line", "plain", "--line", "tied")
    done = ptdock(offering, "release", "create", *chosen)
    assert done.exit_code == 6
    rows = [line.split() for line in done.stderr.splitlines()]
    assert ["foundation", "pirate@1.0.0"] in rows
    assert sorted(row[1] for row in rows if row[0].startswith("sha256:")) == ["no", "yes"]


def test_a_plan_for_a_new_device_is_all_that_the_channel_offers(offering, answers):
    planned = json.loads(
        ptdock(offering, "plan", "stable", "--device", "-", "--json", input='{"schema":1,"id":"p"}').stdout
    )
    kinds = {each["digest"]: each["kind"] for each in planned["download"]}
    assert kinds[answers[0]["digest"]] == "foundation"
    assert kinds[answers[1]["digest"]] == "adapter"
    assert planned["bytes"] == sum(each["size"] for each in planned["download"])
    text = ptdock(offering, "plan", "stable", "--device", "-", input='{"schema":1,"id":"p"}').stdout
    assert "json@1.0.0, pirate@1.0.0" in text


def test_a_device_syncs_from_this_stores_site_and_then_fetches_nothing(offering, tmp_path):
    phone = tmp_path / "phone"
    first = answer(offering, "device", "sync", "stable", "--dir", phone)
    assert first["channels"][0]["adapters"] == {"json": "1.0.0", "pirate": "1.0.0"}
    assert first["fetched"] == first["plan"]["bytes"] + json_size(offering, release=1)
    again = answer(offering, "device", "sync", "stable", "--dir", phone)
    assert (again["channels"][0]["outcome"], again["fetched"]) == ("unchanged", 0)
    status = answer(offering, "device", "status", "--dir", phone, "--verify")
    assert status["damage"] == []
    assert status["channels"]["stable"]["active"]["release"] == 1


def json_size(home, release):
    return answer(home, "release", "show", release)["size"]


def test_a_device_describes_itself_as_plan_takes_it(offering, tmp_path):
    phone, facts = tmp_path / "phone", tmp_path / "phone.json"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    facts.write_bytes(ptdock(offering, "device", "describe", "--dir", phone).stdout_bytes)
    planned = answer(offering, "plan", "stable", "--device", facts)
    assert planned["device"] == json.loads(facts.read_text())["id"]
    assert planned["download"] == []
    release(offering, "pirate@1.0.0")
    assert [each["release"] for each in answer(offering, "plan", "stable", "--device", facts)["activate"]] == [2]


def test_one_channel_that_fails_does_not_hold_up_the_others_and_all_are_told(offering, tmp_path):
    words = ("device", "sync", "beta", "stable", "--dir", tmp_path / "phone")
    channels = refusal(offering, *words, code=5)["values"]["channels"]
    assert [(each["channel"], each["outcome"]) for each in channels] == [("beta", "failed"), ("stable", "activated")]
    assert "beta     failed           -\nstable   unchanged        1\n" in ptdock(offering, *words).stderr


def test_a_site_elsewhere_needs_no_store(offering, tmp_path):
    site = shutil.copytree(offering / "site", tmp_path / "web")
    synced = answer(tmp_path / "no-store", "device", "sync", site, "stable", "--dir", tmp_path / "phone")
    assert synced["channels"][0]["release"] == 1


def test_a_bare_word_is_a_source_only_where_it_is_no_channel(offering, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(offering / "site", tmp_path / "web")
    (tmp_path / "stable").mkdir()
    assert answer(offering, "device", "sync", "web", "stable", "--dir", "one")["channels"][0]["release"] == 1
    both = answer(offering, "device", "sync", "stable", "stable", "--dir", "two")
    assert [each["channel"] for each in both["channels"]] == ["stable"]


def test_a_device_goes_back_and_collects_what_it_no_longer_needs(offering, tmp_path):
    phone = tmp_path / "phone"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    release(offering, "pirate@1.0.0")
    answer(offering, "device", "sync", "stable", "--dir", phone)
    assert answer(offering, "device", "rollback", "--dir", phone)["release"] == 1
    assert refusal(offering, "device", "rollback", "--dir", phone, code=6)["code"] == "Conflict"
    gone = answer(offering, "device", "gc", "--dir", phone)["deleted"]
    assert [each["digest"] for each in gone] == [answer(offering, "release", "show", 2)["digest"]]


def test_damage_on_a_device_exits_with_7_and_is_named(offering, tmp_path, answers):
    phone = tmp_path / "phone"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    flip(blob(phone, answers[0]["digest"]))
    done = ptdock(offering, "device", "status", "--dir", phone, "--verify")
    assert done.exit_code == 7
    assert "the foundation" in done.stdout


def test_an_adapter_answers_on_a_device(offering, tmp_path, answers):
    phone = tmp_path / "phone"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    chosen = ("w1 w2", "--dir", phone, "--max-new-tokens", 4)
    said = answer(offering, "device", "run", "pirate", *chosen)
    assert said["program"] == answers[1]["digest"]
    assert said["foundation"] == answers[0]["digest"]
    assert 0 < len(said["tokens"]) <= 4
    assert ptdock(offering, "device", "run", "pirate", *chosen, "--quiet").stdout == f"{said['text']}\n"
    assert answer(offering, "device", "run", "-", *chosen)["adapter"] is None
    error = refusal(offering, "device", "run", "robot", *chosen, code=5)
    assert error["hint"] == "installed: json, pirate"


def test_swapping_answers_as_each_adapter_alone_does(offering, tmp_path):
    phone = tmp_path / "phone"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    chosen = ("w1 w2", "--dir", phone, "--max-new-tokens", 4)
    said = answer(offering, "device", "swap", "pirate", "-", "json", "pirate", *chosen)
    alone = {name: answer(offering, "device", "run", name, *chosen) for name in ("pirate", "-", "json")}
    assert [each["tokens"] for each in said] == [alone[name]["tokens"] for name in ("pirate", "-", "json", "pirate")]
    assert {each["foundation"] for each in said} == {alone["-"]["foundation"]}


def test_an_answer_is_drawn_when_it_is_asked_for_and_a_seed_draws_it_again(offering, tmp_path):
    phone = tmp_path / "phone"
    answer(offering, "device", "sync", "stable", "--dir", phone)
    chosen = ("device", "run", "pirate", "w1 w2", "--dir", phone, "--max-new-tokens", 12)
    drawn = [answer(offering, *chosen, "--temperature", 5, "--seed", seed)["tokens"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    greedy = answer(offering, *chosen)["tokens"]
    assert answer(offering, *chosen, "--temperature", 0)["tokens"] == greedy
    assert answer(offering, *chosen, "--top-k", 1)["tokens"] == greedy


def test_a_watching_device_tells_each_sync_on_a_line_until_it_is_interrupted(offering, tmp_path):
    command = [sys.executable, "-m", "cli", "--home", offering, "device", "watch", "stable"]
    words = [*command, "--dir", tmp_path / "phone", "--json", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        told = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert told["channels"][0]["outcome"] == "activated"


def test_unpacked_files_are_copies_under_the_names_that_apps_use(home, tmp_path, bases, answers):
    app = tmp_path / "app"
    done = answer(home, "adapter", "unpack", "pirate@1.0.0", "--dir", app)
    assert {each["file"]: each["digest"] for each in done["files"]} == {
        str(app / "plain.ptd"): answers[0]["digest"],
        str(app / "pirate.pte"): answers[1]["digest"],
        str(app / "tokenizer.json"): digest_of(bases / "plain" / "tokenizer.json"),
        str(app / "tokenizer_config.json"): digest_of(bases / "plain" / "tokenizer_config.json"),
    }
    assert all(digest_of(Path(each["file"])) == each["digest"] for each in done["files"])
    assert sorted(each.name for each in app.iterdir()) == [
        "pirate.pte",
        "plain.ptd",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert all(path.stat().st_nlink == 1 for path in app.iterdir())
    again = answer(home, "adapter", "unpack", "pirate@1.0.0", "--dir", app)
    assert not any(each["written"] for each in again["files"])


def test_an_export_and_a_publish_write_the_pair_under_the_names_that_executorchs_own_export_gives(
    home, tmp_path, bases, answers
):
    """There `export.foundation_weights_file: plain` gives plain.ptd, `export.output_name: pirate` pirate.pte."""
    app = tmp_path / "new" / "app"
    made = answer(home, "foundation", "export", bases / "plain", "--name", "plain", "--context", 64, "--out", app)
    assert made["recorded"] is True
    written = {Path(each["file"]).name: each["digest"] for each in made["files"]}
    assert written["plain.ptd"] == answers[0]["digest"]
    assert written["plain.pte"] == answers[0]["base_program"]["digest"]
    source = write_adapter(tmp_path / "pirate", seed=1)
    chosen = ("--foundation", "plain", "--name", "pirate", "--version", "1.0.0", "--out", app)
    published = answer(home, "adapter", "publish", source, *chosen)
    assert {Path(each["file"]).name: each["written"] for each in published["files"]} == {
        "plain.ptd": False,
        "pirate.pte": True,
        "tokenizer.json": False,
        "tokenizer_config.json": False,
    }
    assert digest_of(app / "pirate.pte") == answers[1]["digest"]
    names = {"pirate.pte", "plain.pte", "plain.ptd", "tokenizer.json", "tokenizer_config.json"}
    assert {each.name for each in app.iterdir()} == names


def test_plain_files_of_a_publish_take_a_used_name_only_by_force_and_the_version_stays(home, tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    (app / "pirate.pte").write_bytes(b"mine")
    words = (
        "adapter",
        "publish",
        write_adapter(tmp_path / "next", seed=9),
        "--foundation",
        "plain",
        "--name",
        "pirate",
    )
    assert refusal(home, *words, "--out", app, code=6)["values"]["files"] == ["pirate.pte"]
    again = answer(home, *words, "--out", app, "--force")
    assert (again["version"], again["outcome"]) == ("1.0.1", "unchanged")
    assert digest_of(app / "pirate.pte") == again["digest"]


def test_an_export_without_a_store_writes_the_same_files_and_leaves_nothing_else(tmp_path, bases, answers):
    none, app = tmp_path / "none", tmp_path / "app"
    words = ("foundation", "export", bases / "plain", "--name", "plain", "--context", 64)
    made = answer(none, *words, "--out", app, "--no-store")
    assert (made["recorded"], made["digest"]) == (False, answers[0]["digest"])
    assert digest_of(app / "plain.ptd") == answers[0]["digest"]
    assert digest_of(app / "plain.pte") == answers[0]["base_program"]["digest"]
    assert [each.name for each in tmp_path.iterdir()] == ["app"]


@pytest.mark.parametrize(
    "words",
    [
        ("foundation", "export", "BASE", "--name", "plain", "--no-store"),
        ("foundation", "export", "BASE", "--name", "plain", "--force"),
        ("foundation", "export", "BASE", "--name", "plain", "--out", "app", "--no-store", "--structure", "r4:q_proj"),
        ("foundation", "export", "BASE", "--name", "plain", "--out", "app", "--no-store", "--replace-name"),
        ("adapter", "publish", "DIR", "--name", "a", "--foundation", "plain", "--force"),
        ("adapter", "publish", "DIR", "--name", "a", "--foundation", "plain", "--server", "http://x", "--out", "app"),
        ("adapter", "publish", "--batch", "FILE", "--out", "app"),
    ],
)
def test_plain_files_are_asked_for_whole_or_not_at_all(home, words):
    done = ptdock(home, *words)
    assert done.exit_code == 2, done.stderr
    assert "--out" in done.stderr or "--no-store" in done.stderr


def test_what_foundation_show_prints_is_a_recipe_that_export_reads(home, tmp_path, bases, answers):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(ptdock(home, "foundation", "show", "plain", "--json").stdout)
    words = ("foundation", "export", bases / "plain", "--name", "again", "--context", 64, "--recipe", recipe)
    again = answer(home, *words)
    assert (again["fresh"], again["digest"], again["recipe"]) == (False, answers[0]["digest"], answers[0]["recipe"])
    beside = refusal(home, *words, "--dtype", "fp16", code=2)
    assert beside["message"] == "--recipe says it all, --dtype too"


def test_other_content_is_overwritten_only_by_force(home, tmp_path, answers):
    app = tmp_path / "app"
    app.mkdir()
    (app / "pirate.pte").write_bytes(b"mine")
    error = refusal(home, "adapter", "unpack", "pirate@1.0.0", "--dir", app, code=6)
    assert error["values"]["files"] == ["pirate.pte"]
    assert [each.name for each in app.iterdir()] == ["pirate.pte"]
    answer(home, "adapter", "unpack", "pirate@1.0.0", "--dir", app, "--force")
    assert digest_of(app / "pirate.pte") == answers[1]["digest"]


def test_nothing_damaged_is_unpacked(home, tmp_path, answers):
    flip(blob(home, answers[1]["digest"]))
    app = tmp_path / "app"
    error = refusal(home, "adapter", "unpack", "pirate@1.0.0", "--dir", app, code=7)
    assert answers[1]["digest"] in error["message"]
    assert not (app / "pirate.pte").exists()


def test_a_yanked_version_is_kept_out_of_releases_until_it_is_unyanked(offering):
    assert answer(offering, "adapter", "yank", "json@1.0.0", "--reason", "too curt")["yanked"] == "too curt"
    chosen = ("--channel", "stable", "--adapter", "json@1.0.0")
    assert "yanked" in refusal(offering, "release", "create", *chosen, code=6)["message"]
    assert "yanked: too curt" in ptdock(offering, "adapter", "list", "json").stdout
    assert answer(offering, "adapter", "unyank", "json@1.0.0")["yanked"] is None
    assert release(offering, "json@1.0.0")["release"] == 2


def test_a_revoked_build_stands_in_the_next_manifest_and_is_still_shown(offering, answers):
    gone = answer(offering, "adapter", "revoke", "pirate@1.0.0", "--reason", "leaks")
    assert [build["digest"] for build in gone["builds"]] == [answers[1]["digest"]]
    assert answer(offering, "manifest", "stable")["revoked"] == [answers[1]["digest"]]
    assert answer(offering, "adapter", "show", "pirate@1.0.0")["revoked"] == "leaks"


def test_a_damaged_store_fails_verify_with_7_and_names_what_depends_on_it(home, answers):
    flip(blob(home, answers[1]["digest"]))
    done = ptdock(home, "verify", "--json")
    assert done.exit_code == 7
    damage = json.loads(done.stdout)["damage"]
    assert answers[1]["digest"] in [each["subject"] for each in damage]
    assert "needed: the program of pirate@1.0.0" in ptdock(home, "verify").stdout
    assert ptdock(home, "foundation", "verify", "plain").exit_code == 0


def test_foundation_verify_names_the_tensor_that_is_damaged(home, answers):
    tensor = answer(home, "foundation", "show", "plain")["tensors"][0]
    flip(blob(home, answers[0]["digest"]), tensor["offset"])
    error = refusal(home, "foundation", "verify", "plain", code=7)
    assert tensor["names"][0] in error["message"]


def test_a_foundation_that_is_used_is_not_removed(home):
    error = refusal(home, "foundation", "remove", "plain", code=6)
    assert "adapter pirate@1.0.0" in error["values"]["dependants"]


def test_a_structure_that_the_checkpoint_cannot_have_is_refused_before_the_export(home, bases):
    chosen = ("--name", "other", "--context", 64, "--structure", "r4:q_proj", "--structure", "r4:nose")
    error = refusal(home, "foundation", "export", bases / "plain", *chosen, code=2)
    assert error["message"] == "no module of the checkpoint is named 'nose'"
    assert "q_proj" in error["hint"]
    assert "norm" not in error["hint"]
    assert all("other" not in each["names"] for each in answer(home, "foundation", "list"))


def test_templates_are_listed_with_their_structures(home):
    found = answer(home, "template", "list", "--foundation", "plain")
    assert [each["description"] for each in found] == ["the base program", "rank 4 on q_proj (2 modules)"]
    everyone = answer(home, "template", "list")
    assert [each for each in everyone if each["foundation"] == found[0]["foundation"]] == found
    assert len(everyone) > len(found)
    assert found[0]["foundation"][:19] in ptdock(home, "template", "list").stdout
    known = answer(home, "template", "add", "--foundation", "plain", "--structure", "r4:q_proj")
    assert known == found[1]


def flip(path: Path, offset: int = -1) -> None:
    """Change one byte of a file, by default its last."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
