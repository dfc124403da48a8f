"""The command line from outside: help, answers, exit codes, terminals. Nothing here exports."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli import SECTIONS, cli
from registry.documents import MAX_INTEGER
from tests.command_line import answer, ptdock, refusal

ROOT = Path(__file__).resolve().parent.parent


def process(*words, **options):
    """The arguments of subprocess for a command line in its own process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return {"args": [sys.executable, "-m", "cli", *map(str, words)], "env": environment, **options}


def commands(command=cli, path=()):
    """Every verb with its path."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


VERBS = dict(commands())


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory):
    path = tmp_path_factory.mktemp("empty") / "home"
    assert ptdock(path, "init").exit_code == 0
    return path


@pytest.fixture
def home(empty_home, tmp_path):
    return Path(shutil.copytree(empty_home, tmp_path / "home"))


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_explains_itself_and_takes_json_and_quiet(path):
    done = ptdock(None, *path, "--help")
    assert done.exit_code == 0
    assert "--json" in done.stdout
    assert "--quiet" in done.stdout
    assert VERBS[path].help
    assert str(MAX_INTEGER) not in done.stdout  # a bound of documents, no news to people


@pytest.mark.parametrize("noun", sorted({path[0] for path in VERBS if len(path) > 1}))
def test_no_line_of_help_is_cut(noun):
    assert "..." not in ptdock(None, noun, "--help").stdout.partition("Commands:")[2]


def test_the_top_help_says_of_each_member_what_the_member_says_of_itself():
    context = click.Context(cli)
    for members in SECTIONS.values():
        for name, (_, _, line) in members.items():
            member = cli.get_command(context, name)
            assert member.help.splitlines()[0] == line
            assert member.name == name


def test_help_imports_neither_the_database_nor_numpy():
    program = "import sys, cli\ntry: cli.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    for words in (["--help"], ["foundation", "--help"], ["adapter", "publish", "--help"]):
        done = subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, check=True)
        loaded = {name.partition(".")[0] for name in done.stderr.decode().split()}
        assert loaded & {"sqlalchemy", "alembic", "numpy", "safetensors", "torch", "urllib3"} == set()
        assert "click" in loaded


def test_a_store_is_made_once(tmp_path):
    first = answer(tmp_path / "home", "init")
    second = answer(tmp_path / "home", "init")
    assert first["fresh"]
    assert second == {**first, "fresh": False}


def test_the_home_comes_from_the_environment(tmp_path):
    done = ptdock(None, "init", env={"PTDOCK_HOME": str(tmp_path / "store")})
    assert done.exit_code == 0
    assert (tmp_path / "store" / "registry.db").is_file()


@pytest.mark.parametrize("words", ["foundation list", "adapter list", "channel list", "release list"])
def test_lists_of_an_empty_store_are_empty(home, words):
    assert answer(home, *words.split()) == []
    assert ptdock(home, *words.split()).stdout == ""


def test_a_sound_store_verifies(home):
    report = answer(home, "verify")
    assert report["clean"]
    assert report["damage"] == []


def test_a_channel_is_created_shown_and_deleted(home):
    made = answer(home, "channel", "create", "stable", "--poll", "15m", "--lifetime", "7d")
    assert made["name"] == "stable"
    assert made["settings"] == {"poll_seconds": 900, "lifetime_seconds": 604_800}
    assert made["arms"] == [{"release": None, "share_bp": 10_000, "state": "open"}]
    assert answer(home, "channel", "show", "stable") == made
    shown = ptdock(home, "channel", "show", "stable").stdout
    assert "as they are" in shown
    assert "100 %" in shown
    assert answer(home, "channel", "delete", "stable") == {"name": "stable", "deleted": True}
    assert answer(home, "channel", "list") == []


def test_the_log_names_who_did_what(home):
    ptdock(home, "channel", "create", "stable")
    events = answer(home, "log")
    assert [event["action"] for event in events] == ["channel.create", "registry.init"]
    assert events[0]["prev"] == events[1]["digest"]
    assert len(answer(home, "log", "-n", "1")) == 1
    assert "channel stable" in ptdock(home, "log").stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("foundation show nope", 5, "no foundation 'nope'"),
        ("adapter show nope", 5, "no adapter 'nope'"),
        ("adapter show nope@1.0.0", 5, "no adapter 'nope'"),
        ("adapter yank nope@1.0.0 --reason x", 5, "no adapter 'nope'"),
        ("channel show nope", 5, "no channel 'nope'"),
        ("manifest nope", 5, "no channel 'nope'"),
        ("release show 7", 5, "no release 7"),
        ("foundation show sha256:00", 2, "not a digest"),
        ("channel create ../stable", 2, "'../stable' is not a usable channel name"),
        ("channel create Stable", 2, "'Stable' is not a usable channel name"),
        ("adapter show ../../etc/passwd", 2, "'../../etc/passwd' is not a usable adapter name"),
        ("device status --dir {here}/nowhere", 5, "not a device directory"),
        ("device rollback --dir {here}/nowhere", 5, "not a device directory"),
        ("device run pirate hello --dir {here}/nowhere", 5, "not a device directory"),
        ("plan nope --device {here}/nowhere.json", 2, "no such file"),
        ("adapter check {here} --foundation nope", 5, "no foundation 'nope'"),
        ("adapter publish {here} --foundation nope --name pirate", 5, "no foundation 'nope'"),
        ("adapter publish {here} --foundation nope --name ../pirate", 2, "'../pirate' is not a usable adapter name"),
        ("adapter publish {here} --foundation nope --name pirate --version 1", 2, "'1' is not a version"),
        (
            f"adapter publish {{here}} --foundation nope --name pirate --version 1.0.0-{'x' * 250}",
            2,
            "a version has at most 255 characters, not 256",
        ),
        ("foundation export {here} --name ../tiny", 2, "'../tiny' is not a usable foundation name"),
        ("foundation export {here} --name tiny", 2, "config.json"),
        ("foundation export {here}/nowhere --name tiny", 2, "no such directory"),
        ("foundation export {here} --name tiny --dtype bf16", 2, "'bf16'"),
        ("foundation export {here} --name tiny --backend coreml", 2, "no shared foundation on coreml"),
        ("foundation export {here} --name tiny --qmode 4w", 2, "cannot be quantized as '4w'"),
        ("foundation export {here} --name tiny --embedding-bits 4", 2, "without --qmode"),
        ("foundation export {here} --name tiny --recipe {here}/none.json", 2, "no such file"),
        ("base fingerprint {here}", 2, "config.json"),
        ("template add --foundation nope --structure r8:q_proj", 5, "no foundation 'nope'"),
        ("adapter yank pirate --reason x", 2, "'pirate' names no version"),
        ("adapter publish {here} --foundation nope --name pirate --meta {here}/no.json", 2, "no such file"),
        ("device sync ./nowhere stable --dir {here}/phone", 2, "is not a directory"),
        ("device sync stable --dir {here}/phone --facts {here}", 2, "no such file"),
        ("device sync nope --dir {here}/phone", 5, "no channel 'nope'"),
    ],
)
def test_a_mistake_gives_one_message_with_its_exit_code(home, tmp_path, words, code, message):
    words = words.format(here=tmp_path).split()
    assert message in refusal(home, *words, code=code)["message"]


def test_a_missing_store_names_the_command_that_makes_one(tmp_path):
    error = refusal(tmp_path / "nowhere", "log", code=5)
    assert error["code"] == "NotFound"
    assert "ptdock init" in error["hint"]
    said = ptdock(tmp_path / "nowhere", "log").stderr
    assert said == f"error: {error['message']}\n hint: {error['hint']}\n"


def test_a_hub_id_is_answered_with_the_download_command(home):
    error = refusal(home, "foundation", "export", "HuggingFaceTB/SmolLM2-135M", "--name", "tiny", code=2)
    assert "hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M" in error["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("adapter nonsense", "No such command 'nonsense'"),
        ("adapter publish", "DIR, --foundation, --name missing: give DIR, --foundation and --name, or --batch FILE"),
        ("adapter publish . --foundation tiny", "--name missing"),
        ("channel create stable --nonsense", "No such option"),
        ("release create --channel stable --adapter a@1.0.0 --share 10", "'10' is not a share"),
        ("release create --channel stable --adapter a@1.0.0 --share 0%", "'0%' is not a share"),
        ("release create --channel stable --adapter a@1.0.0 --share 101%", "'101%' is not a share"),
        ("channel create stable --poll soon", "'soon' is not a duration"),
        ("adapter check . --foundation x --base-fingerprint 12", "not a digest"),
        ("adaptor list", "Did you mean 'adapter'?"),
        ("adapter lst", "Did you mean 'list'?"),
        ("release show none", "'none' is not a whole number"),
        ("release show 99999999999999999999", "99999999999999999999 is more than"),
        ("log -n 0", "0 is less than 1"),
        ("device sync ./site --dir phone", "no channel is named after the source"),
        ("device status --dir cli.py", "is a file"),
    ],
)
def test_a_command_line_that_cannot_be_read_exits_with_2(home, words, message):
    error = refusal(home, *words.split(), code=2)
    assert error["code"] == "UsageError"
    assert message in error["message"]
    assert error["hint"].startswith("ptdock ")
    assert error["hint"].endswith("--help")


def test_a_home_after_the_command_is_told_where_to_stand(tmp_path):
    done = ptdock(None, "init", "--home", tmp_path)
    assert done.exit_code == 2
    assert "ptdock --home DIR" in done.stderr


def test_a_bare_noun_answers_with_its_help():
    done = ptdock(None, "channel")
    assert done.exit_code == 2
    assert done.stderr.startswith("Usage: ptdock channel")


def test_words_after_two_dashes_are_no_options(home):
    done = ptdock(home, "channel", "create", "--", "--json")
    assert done.exit_code == 2
    assert done.stdout == ""


@pytest.mark.parametrize("words", ["foundation show x", "adapter show x", "channel show x"])
def test_what_a_store_has_none_of_yet_is_told_how_to_be_made(home, words):
    hint = refusal(home, *words.split(), code=5)["hint"]
    assert hint.startswith(f"there are no {words.split()[0]}s yet; ptdock {words.split()[0]} ")


def test_an_empty_list_says_so_beside_the_answer(home):
    done = ptdock(home, "adapter", "list")
    assert (done.stdout, done.stderr) == ("", "none yet\n")
    assert ptdock(home, "adapter", "list", "--quiet").stderr == ""


def test_quiet_leaves_only_the_answer(home):
    assert ptdock(home, "verify").stderr != ""
    assert ptdock(home, "verify", "--quiet").stderr == ""
    assert ptdock(home, "--quiet", "verify").stderr == ""


def test_json_may_stand_before_the_command_too(home):
    assert json.loads(ptdock(home, "--json", "channel", "list").stdout) == []


def test_a_pipe_that_closes_early_ends_the_command_in_silence(home):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(**process("--home", home, "log", stdout=writer, stderr=subprocess.PIPE), check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_answer_is_said(home):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(**process("--home", home, "log", stdout=full, stderr=subprocess.PIPE), check=False)
    assert done.returncode == 8
    assert b"error: no space left" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("words", "code"), [("log", 8), ("channel show none", 5), ("nonsense", 2)])
def test_an_error_that_cannot_be_written_as_json_is_still_said(home, words, code):
    with open("/dev/full", "wb") as full:
        command = process("--home", home, *words.split(), "--json", stdout=full, stderr=subprocess.PIPE)
        done = subprocess.run(**command, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_a_value_that_begins_with_a_dash_is_told_how_to_be_written(home):
    error = refusal(home, "trace", "-5", code=2)
    assert error["hint"].startswith("write -- before a value that begins with -")


@pytest.mark.parametrize(
    "words", ["set stable --on-release", "set stable --require-lineage", "create other --require-lineage"]
)
def test_what_is_not_utf_8_and_would_be_recorded_is_refused(home, words):
    ptdock(home, "channel", "create", "stable")
    error = refusal(home, "channel", *words.split(), os.fsdecode(b"run\xff"), code=2)
    assert "is not UTF-8" in error["message"]
    assert len(error["message"]) < 120


def test_an_interrupt_exits_with_130_and_one_word(home, tmp_path):
    ptdock(home, "channel", "create", "stable")
    fifo = tmp_path / "device.json"
    os.mkfifo(fifo)
    command = process("--home", home, "plan", "stable", "--device", fifo, "--json")
    waiting = subprocess.Popen(**command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(fifo, "wb"):  # returns when the command has opened it to read
        waiting.send_signal(signal.SIGINT)
        out, said = waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    assert json.loads(out)["error"]["code"] == "Interrupted"
    assert said.strip() == b"interrupted"


def on_a_terminal(*words, env=None):
    """What a command writes when all of its output is a terminal."""
    leader, follower = pty.openpty()
    command = process(*words, env={"TERM": "xterm", **(env or {})})
    running = subprocess.Popen(**command, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    written = b""
    try:
        while chunk := os.read(leader, 65536):
            written += chunk
    except OSError:  # Linux says so when the last writer is gone
        pass
    finally:
        os.close(leader)
    assert running.wait(timeout=30) == 0
    return written.decode()


def test_colours_are_for_terminals_and_no_color_is_respected(home):
    ptdock(home, "channel", "create", "stable")
    words = ("--home", home, "channel", "show", "stable")
    assert "\x1b[1mstable\x1b[0m" in on_a_terminal(*words)
    assert "\x1b[" not in on_a_terminal(*words, env={"NO_COLOR": "1"})
    assert "\x1b[" not in ptdock(home, *words[2:]).stdout


def test_a_device_document_that_is_no_json_is_refused(home):
    ptdock(home, "channel", "create", "stable")
    done = ptdock(home, "plan", "stable", "--device", "-", input="{")
    assert done.exit_code == 2
    assert "device state: not JSON" in done.stderr


def test_the_version_is_said():
    done = ptdock(None, "--version")
    assert done.exit_code == 0
    assert done.stdout.startswith("ptdock ")
