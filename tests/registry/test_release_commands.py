"""`ptdock release` and `ptdock channel`, as people type them."""

import json
import re
import sys
from pathlib import Path

import pytest

from registry.rollout import bucket
from tests.command_line import answer, ptdock, refusal
from tests.registry.live import live


@pytest.fixture
def shop(stocked_home, tmp_path, pair):
    made = live(stocked_home, tmp_path / "home", pair)
    made.registry.create_release("stable", ["pirate@1.0.0"])
    made.registry.create_channel("beta")
    return made


@pytest.fixture
def home(shop) -> Path:
    return shop.registry.home


def create(home, *words):
    return answer(home, "release", "create", "--channel", "stable", *words)


def arms(home, channel="stable"):
    return [(arm["release"], arm["share_bp"], arm["state"]) for arm in answer(home, "channel", "show", channel)["arms"]]


def test_the_verbs_of_a_rollout_in_order(home):
    made = create(home, "--adapter", "json@1.0.0", "--share", "10%")
    assert (made["release"], made["state"], made["sequence"]) == (2, "offered", 2)
    chosen = ("--channel", "stable")
    assert answer(home, "release", "widen", *chosen, "--share", "50%")["sequence"] == 3
    assert arms(home) == [(2, 5000, "open"), (1, 5000, "open")]
    answer(home, "release", "halt", *chosen)
    assert arms(home)[0] == (2, 5000, "halted")
    assert refusal(home, "release", "widen", *chosen, "--share", "60%", code=2)["hint"] == "resume it first"
    answer(home, "release", "resume", *chosen)
    answer(home, "release", "complete", *chosen)
    assert arms(home) == [(2, 10_000, "open")]
    answer(home, "release", "rollback", *chosen)
    assert arms(home) == [(1, 10_000, "open")]
    assert [event["action"] for event in answer(home, "log", "--limit", 6)][::-1] == [
        "release.create",
        "release.widen",
        "release.halt",
        "release.resume",
        "release.complete",
        "release.rollback",
    ]


def test_what_changes_nothing_says_so(home):
    answer(home, "release", "halt", "--channel", "stable")
    again = answer(home, "release", "halt", "--channel", "stable")
    assert (again["manifest"], again["sequence"]) == (None, 2)
    assert "nothing to do" in ptdock(home, "release", "halt", "--channel", "stable").stdout


def test_a_draft_is_listed_started_and_retired(home):
    made = create(home, "--adapter", "json@1.0.0", "--draft")
    assert (made["release"], made["state"], made["manifest"]) == (2, "draft", None)
    answer(home, "release", "start", "2", "--channel", "stable")
    listed = {each["release"]: each for each in answer(home, "release", "list")}
    assert {number: each["state"] for number, each in listed.items()} == {1: "retired", 2: "offered"}
    assert listed[2]["offered"] == [{"channel": "stable", "release": 2, "share_bp": 10_000, "state": "open"}]
    assert listed[1]["adapters"] == ["pirate@1.0.0"]
    assert "stable 100 %" in ptdock(home, "release", "list").stdout


def test_a_promotion_from_one_channel_to_another(home):
    answer(home, "release", "promote", "--from", "stable", "--to", "beta", "--share", "25%")
    assert arms(home, "beta") == [(1, 2500, "open"), (None, 7500, "open")]
    assert (
        "never offered"
        in refusal(home, "release", "promote", "--from", "beta", "--to", "stable", "--release", 9, code=5)["message"]
    )


def test_a_release_is_made_from_the_live_one_with_changes(home):
    made = create(home, "--base", "live", "--set", "json@1.0.0", "--drop", "pirate", "--app", "android=512")
    assert made["adapters"] == ["json@1.0.0"]
    assert made["lines"][0]["requires"]["app"] == {"android": {"min_build": 512}}
    assert create(home, "--base", 1, "--set", "json", "--ram", "1.5GB")["adapters"] == ["json@1.0.0", "pirate@1.0.0"]
    assert answer(home, "release", "show", 3)["lines"][0]["requires"]["ram_bytes"] == 1_500_000_000
    text = ptdock(home, "release", "show", 3).stdout
    assert "1.5 GB RAM" in text
    for words, message in [
        (("--set", "json@1.0.0"), "name it with --base"),
        (("--base", "newest"), "--base newest"),
        (("--adapter", "json", "--app", "android"), "not an app's build"),
        (("--adapter", "json", "--ram", "much"), "not a size"),
    ]:
        assert message in refusal(home, "release", "create", "--channel", "stable", *words, code=2)["message"]


def test_what_show_prints_makes_the_same_release_again(home, tmp_path):
    first = create(home, "--adapter", "json", "--adapter", "pirate", "--ram", "3GB", "--on-demand", "pirate")
    file = tmp_path / "release.json"
    file.write_text(ptdock(home, "release", "show", 2, "--json").stdout)
    again = create(home, "--from", file)
    same = ("lines", "adapters", "on_demand", "holes")
    assert {key: again[key] for key in same} == {key: first[key] for key in same}
    assert again["on_demand"] == ["pirate"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected an object"),
        ('{"adapters": ["json"], "line": []}', "unknown field 'line'"),
        ('{"lines": []}', "'adapters' is missing"),
        ('{"adapters": ["json"], "lines": [{"foundation": 1}]}', "foundation: expected a text"),
        ('{"adapters": ["json"], "lines": [{"foundation": "f1", "requires": {"ram_bytes": -1}}]}', "ram_bytes"),
        ("{", "not JSON"),
    ],
)
def test_a_file_that_asks_for_nothing_sensible_is_refused(home, tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    words = ("release", "create", "--channel", "stable", "--from", tmp_path / "bad.json")
    assert message in refusal(home, *words, code=2)["message"]


def test_a_dry_run_prints_the_difference_and_the_budget_and_makes_nothing(home, tmp_path):
    fleet = tmp_path / "fleet.json"
    cohorts = [{"name": "old", "count": 1000, "release": 1}, {"name": "new", "count": 10}]
    fleet.write_text(json.dumps({"schema": 1, "cohorts": cohorts}))
    words = ("release", "create", "--channel", "stable", "--base", "live", "--set", "json", "--share", "10%")
    before = answer(home, "log")
    found = answer(home, *words, "--dry-run", "--fleet", fleet)
    assert found["dry_run"]
    assert [each["name"] for each in found["diff"]["adapters"]] == ["json"]
    assert [arm["share_bp"] for arm in found["arms"]] == [1000, 9000]
    assert found["budget"]["devices"] == 1010
    text = ptdock(home, *words, "--dry-run", "--fleet", fleet).stdout
    assert "release 1 → 2" in text
    assert "egress as factors" in text
    assert answer(home, "log") == before
    made = create(home, "--base", "live", "--set", "json", "--share", "10%")
    assert made["digest"] == found["digest"]


def test_a_difference_in_bytes_for_a_device_in_each_state(home, shop):
    create(home, "--base", "live", "--set", "json")
    found = answer(home, "release", "diff", 1, 2)
    new = shop.registry.build("json@1.0.0").file.size
    fresh, running = found["states"]
    assert (fresh["release"], running["release"]) == (None, 1)
    assert running["plain"]["bytes"] == new + shop.registry.release(2).document.size
    assert found["kept"] == ["pirate"]
    text = ptdock(home, "release", "diff", 1, 2).stdout
    assert "+  json" in text
    assert "runs release 1" in text


def test_a_budget_of_a_step_before_it_is_taken(home):
    create(home, "--adapter", "json", "--draft")
    found = answer(home, "release", "budget", "--channel", "stable", "--release", 2, "--share", "10%")
    assert {(row["cohort"], row["release"], row["share_bp"]) for row in found["rows"]} == {
        ("holds nothing", 2, 1000),
        ("holds nothing", 1, 9000),
        ("runs release 1", 2, 1000),
        ("runs release 1", 1, 9000),
        ("runs release 2", 2, 1000),
        ("runs release 2", 1, 9000),
    }
    assert "runs release 1" in ptdock(home, "release", "budget", "--channel", "stable").stdout


def test_who_is_offered_what_and_why(home):
    create(home, "--adapter", "json", "--share", "50%")
    salt = answer(home, "channel", "show", "stable")["salt"]
    for device in ("a", "b", "c"):
        found = answer(home, "release", "who", "--channel", "stable", "--device", device)
        assert found["bucket"] == bucket(salt, device)
        assert found["release"] == (2 if found["bucket"] < 5000 else 1)
    answer(home, "release", "halt", "--channel", "stable")
    device = next(name for name in map(str, range(99)) if bucket(salt, name) < 5000)
    who = ("release", "who", "--channel", "stable", "--device", device)
    assert answer(home, *who)["release"] == 1
    assert answer(home, *who, "--active", 2)["release"] == 2
    assert "halted" in ptdock(home, *who).stdout
    assert refusal(home, *who, "--at", "2001-01-01", code=5)["message"] == "stable offered nothing at that time"
    assert refusal(home, *who, "--at", "yesterday", code=2)


def test_a_channels_settings_are_shown_as_bars_and_words(home):
    words = ("--holdout", "5%", "--poll", "1h", "--require-lineage", "run", "--min-coverage", "95%")
    changed = answer(home, "channel", "set", "stable", *words)
    assert changed["settings"]["min_coverage_bp"] == 9500
    create(home, "--adapter", "json", "--share", "10%")
    text = ptdock(home, "channel", "show", "stable").stdout
    assert "lineage run, coverage 95 %" in text
    assert "1 adapter, 1 line" in text
    assert re.search(r"^poll +1h$", text, re.MULTILINE)
    assert "held out" in text
    assert [arm["share_bp"] for arm in answer(home, "channel", "list")[1]["arms"]] == [1000, 8500, 500]
    answer(home, "channel", "set", "stable", "--no-require-lineage", "--holdout", "0%", "--min-coverage", "0%")
    assert "demands" not in ptdock(home, "channel", "show", "stable").stdout
    assert refusal(home, "channel", "set", "stable", "--holdout", "101%", code=2)


def test_a_hook_that_fails_is_shown_on_standard_error_and_undoes_nothing(home, tmp_path):
    script = tmp_path / "hook.py"
    script.write_text("import sys; print('no network'); sys.exit(3)")
    answer(home, "channel", "set", "stable", "--on-release", f"{sys.executable} {script}")
    done = ptdock(home, "release", "create", "--channel", "stable", "--adapter", "json", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["hook"]["code"] == 3
    assert "on_release ended with 3: no network; the release stays" in done.stderr
    assert answer(home, "channel", "show", "stable")["on_release"] == [sys.executable, str(script)]
    assert answer(home, "channel", "set", "stable", "--on-release", "")["on_release"] is None


def test_revoked_builds_need_a_word(home):
    create(home, "--adapter", "json")
    answer(home, "adapter", "revoke", "pirate@1.0.0", "--reason", "leaks")
    words = ("release", "rollback", "--channel", "stable")
    assert "--allow-revoked" in refusal(home, *words, code=6)["hint"]
    done = ptdock(home, *words, "--allow-revoked", "--json")
    assert json.loads(done.stdout)["warnings"] == ["pirate@1.0.0 is revoked: leaks"]
    assert "pirate@1.0.0 is revoked: leaks" in done.stderr
