"""What people read: sizes, times, tables, progress; and the options that are spelled in people's units."""

import io
import json
import os
import sys
import unicodedata
from hashlib import sha256

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import failures, options, render
from console.app import json_text
from console.progress import Progress, own_stderr
from registry.digest import Digest
from registry.errors import AdapterRefused, FormatError, InputError


class Terminal(io.StringIO):
    """A text buffer that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (31_360, "31.4 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (538_112_345, "538.1 MB"),
        (5_368_709_120, "5.4 GB"),
        (1 << 60, "1152.9 PB"),
    ],
)
def test_sizes_are_decimal_with_one_digit_behind_the_point(count, text):
    assert render.size(count) == text


@given(st.integers(0, 10**18))
def test_a_size_is_never_off_by_more_than_its_last_digit(count):
    number, unit = render.size(count).split()
    factor = 1000 ** ("B", "kB", "MB", "GB", "TB", "PB").index(unit)
    assert abs(float(number) * factor - count) <= 0.05001 * factor


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "12 ms"), (0.9996, "1.0 s"), (3.44, "3.4 s"), (99.96, "1 min 40 s"), (133, "2 min 13 s")],
)
def test_durations_are_as_exact_as_they_are_long(value, text):
    assert render.seconds(value) == text


def test_columns_are_aligned_and_numbers_flush_right():
    text = click.unstyle(render.table(("name", "size"), [("pirate", "2.1 MB"), ("j", "12.4 MB")], right={1}))
    assert text.splitlines() == ["name       size", "pirate   2.1 MB", "j       12.4 MB"]


def test_a_table_without_rows_is_nothing():
    assert render.table(("name",), []) == ""


def test_of_many_names_a_cell_holds_a_few() -> None:
    assert render.several(["a", "b"]) == "a, b"
    assert render.several(["a", "b", "c", "d"]) == "a, b and 2 more"
    assert render.several([]) == ""


@given(st.text())
def test_no_text_from_a_file_steers_the_terminal(text):
    assert not any(unicodedata.category(character).startswith("C") for character in render.clean(text))


def test_an_escape_sequence_is_shown_as_its_number():
    assert render.clean("a\x1b[2Jb\n") == "a\\u{1b}[2Jb\\u{a}"
    assert render.clean("Grüße, 名前 █") == "Grüße, 名前 █"


def test_fields_without_a_value_are_left_out():
    text = click.unstyle(render.fields([("name", "tiny"), ("yanked", None), ("builds", 0)]))
    assert text.splitlines() == ["name    tiny", "builds  0"]


@pytest.mark.parametrize(("part", "full"), [(0, 0), (0.5, 12), (1, 24)])
def test_a_bar_is_as_full_as_the_share(part, full):
    assert render.bar(part) == "█" * full + "░" * (24 - full)


def convert(callback, value):
    command = click.Command("test")
    return callback(click.Context(command), click.Option(["--x"]), value)


@given(st.integers(1, 10_000))
def test_every_share_in_basis_points_can_be_written_in_percent(points):
    assert convert(options.share_bp, f"{points // 100}.{points % 100:02d}%") == points


@pytest.mark.parametrize("text", ["10", "0%", "0.001%", "100.01%", "-5%", "ten%", "", "1e1%", "\u0661%"])
def test_other_shares_are_usage_errors(text):
    with pytest.raises(click.BadParameter, match="is not a share"):
        convert(options.share_bp, text)


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("15m", 900), ("4h", 14_400), ("30d", 2_592_000)])
def test_durations_are_read_in_seconds_minutes_hours_and_days(text, value):
    assert convert(options.duration, text) == value


def test_lineage_is_pairs_and_files_and_the_later_wins(tmp_path):
    file = tmp_path / "meta.json"
    file.write_text(json.dumps({"run": "https://a", "figures": {"loss": 0.5}}))
    assert options.read_lineage(("owner=ann", str(file), "run=https://b?x=1")) == {
        "owner": "ann",
        "run": "https://b?x=1",
        "figures": {"loss": 0.5},
    }


@pytest.mark.parametrize(("content", "kind"), [(None, InputError), ("[]", FormatError), ("{", FormatError)])
def test_lineage_that_is_no_object_is_refused(tmp_path, content, kind):
    file = tmp_path / "meta.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(kind):
        options.read_lineage((str(file),))


def test_off_a_terminal_each_phase_is_a_line():
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress("hashing the checkpoint")
        progress.bytes(1000)
        progress("tracing")
    lines = stream.getvalue().splitlines()
    assert [line.split(" s  ")[1] for line in lines] == ["hashing the checkpoint", "tracing"]
    assert float(lines[0].split(" s  ")[0]) == 0.0


def test_on_a_terminal_the_running_phase_counts_bytes_on_its_own_line():
    stream = Terminal()
    with Progress(stream) as progress:
        progress.phase("copying", total=2000)
        progress.bytes(500)
        progress.reached(1500, 3000)
    assert "\r   0.0 s  copying  1.5 kB of 3.0 kB\x1b[K" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K"), "a quick phase leaves nothing behind"


def test_a_note_stands_on_its_own_line_above_the_running_phase():
    plain, live = io.StringIO(), Terminal()
    for stream in (plain, live):
        with Progress(stream) as progress:
            progress("syncing")
            progress.note("another process is changing phone: waiting")
    assert plain.getvalue().splitlines()[1] == "another process is changing phone: waiting"
    assert "\ranother process is changing phone: waiting\x1b[K\n\r   0.0 s  syncing" in live.getvalue()


def test_a_document_is_json_whatever_names_are_in_it():
    name = os.fsdecode(b"caf\xe9\xff")
    assert json.loads(json_text({"file": name, "digest": Digest.of(b"")}).decode()) == {
        "file": name,
        "digest": f"sha256:{sha256(b'').hexdigest()}",
    }


def test_quiet_progress_says_nothing():
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        progress("hashing")
        progress.bytes(10)
    assert stream.getvalue() == ""


def test_notes_reach_standard_error_while_descriptor_2_points_elsewhere(capfd):
    stream = own_stderr()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        print("tracing", file=stream)
        os.write(2, b"noise of a library\n")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        if stream is not sys.stderr:
            stream.close()
    assert capfd.readouterr().err == "tracing\n"


def finding(level, subject, message, hint=""):
    return {"level": level, "code": "x", "subject": subject, "message": message, "hint": hint}


def test_a_refused_adapter_prints_all_findings_aligned_one_a_line(capsys):
    error = AdapterRefused(
        "r is wrong (and 1 more)",
        findings=[
            finding("error", "r", "must be an integer >= 1, not 0", "train with r >= 1"),
            finding("error", "lora_A.weight", "holds NaN"),
            finding("warning", "adapter", "base not pinned"),
        ],
    )
    assert failures.report(error, as_json=True) == 4
    out, said = capsys.readouterr()
    assert said.splitlines() == [
        "error: the adapter was refused: 2 errors, 1 warning",
        "error    r              must be an integer >= 1, not 0  → train with r >= 1",
        "error    lora_A.weight  holds NaN",
        "warning  adapter        base not pinned",
    ]
    document = json.loads(out)["error"]
    assert document["code"] == "AdapterRefused"
    assert document["values"]["findings"] == error.values["findings"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "blobs/x"), "blobs/x: no space left"),
        (PermissionError(13, "Permission denied", "/store"), "/store: Permission denied"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "this needs torch, which is not installed"),
        (ModuleNotFoundError("x", name="executorch.runtime"), "this needs executorch, which is not installed"),
    ],
)
def test_the_systems_refusals_become_unavailable(error, message):
    known = failures.translated(error)
    assert known.message == message
    assert known.exit_code == 8
    assert known.hint


def test_a_missing_module_of_our_own_is_no_mistake_of_the_user():
    assert failures.translated(ModuleNotFoundError("x", name="registry.nothing")) is None


def test_a_digest_option_is_a_digest():
    digest = Digest.of(b"x")
    assert convert(options.digest, str(digest)) == digest
    assert convert(options.digest, None) is None


def test_findings_that_say_the_same_are_told_by_the_first_few_and_their_number():
    rows = [
        ("error", f"layers.{n}.q_proj", f"rank 8 in tensors, 4 in config for layers.{n}.q_proj", "") for n in range(60)
    ]
    rows.append(("warning", "", "base not pinned", "pin it"))
    lines = click.unstyle(render.findings(rows)).splitlines()
    assert lines == [
        "error    layers.0.q_proj  rank 8 in tensors, 4 in config",
        "error    layers.1.q_proj  rank 8 in tensors, 4 in config",
        "error    layers.2.q_proj  rank 8 in tensors, 4 in config",
        "         … and 57 more say the same; --json has them all",
        "warning                   base not pinned  → pin it",
    ]
