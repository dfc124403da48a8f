"""What a device runs, in ExecuTorch's own runtime: right answers on the right foundation, words on any other."""

import os
from dataclasses import replace

import pytest
import torch

from device.doctor import File, diagnose, explain
from device.installed import locate
from device.manage import status
from device.run import Chat, Model, Sampler, run
from device.selftest import replay
from device.source import DirectorySource
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.digest import Digest
from registry.errors import InputError, IntegrityError, NotFound, Unavailable
from registry.prompt import Affix, Prompt, Sampling
from registry.selftest import Probe, SelfTest
from tests.runtime import Session

PROMPT = Prompt(
    roles={"user": Affix("<s> user ", " </s>"), "system": Affix("<s> system ", " </s>")},
    generation="<s> assistant ",
    stop_token_ids=(2,),
)
OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)


@pytest.fixture
def phone(site, tiny_files, tmp_path):
    """A device with two adapters installed."""
    read = {path.name: path.read_bytes() for path in tiny_files.iterdir() if path.is_file()}
    line = site.line(
        {"pirate": read["pirate.pte"], "json": read["json.pte"]},
        foundation=read["foundation.ptd"],
        base=read["base.pte"],
        tokenizer=read["tokenizer.json"],
        prompt=PROMPT.to_bytes(),
    )
    site.release(1, line)
    site.offer(1)
    sync(DirectorySource(site.root), ["stable"], tmp_path / "phone", OPTIONS)
    return tmp_path / "phone"


def greedy_by_hand(program, foundation, tokens, count):
    """The reference: the runtime fed one token at a time."""
    session = Session(program, foundation)
    for token in tokens:
        logits = session.feed([token])
    answer = []
    for _ in range(count):
        answer.append(int(logits.argmax()))
        logits = session.feed(answer[-1:])
    return answer


def files_of(directory, program="base.pte", foundation="foundation.ptd"):
    return File(directory / program, "the program"), File(directory / foundation, "the foundation")


@pytest.mark.parametrize("adapter", ["pirate", "json", None])
def test_an_adapter_answers_as_the_runtime_does_token_by_token(phone, tiny_files, adapter):
    chat = Chat.open(phone, adapter)
    heard = []
    answer = chat.answer("w1 w2 w3", max_new_tokens=6, on_token=heard.append)
    asked = chat.tokenizer.encode("<s> user w1 w2 w3 </s><s> assistant ", add_special_tokens=False).ids
    name = f"{adapter or 'base'}.pte"
    expected = greedy_by_hand(tiny_files / name, tiny_files / "foundation.ptd", asked, 6)
    stop = [index for index, token in enumerate(expected) if token == 2]
    assert list(answer.tokens) == expected[: stop[0] if stop else 6]
    assert answer.prompt_tokens == len(asked)
    assert "".join(heard) == answer.text
    assert answer.text == chat.tokenizer.decode(list(answer.tokens))


def test_two_adapters_and_the_base_answer_differently_on_one_foundation(phone):
    answers = {run(phone, adapter, "w1 w2 w3", max_new_tokens=6).tokens for adapter in ("pirate", "json", None)}
    assert len(answers) == 3


def test_a_prompt_starts_from_an_empty_context_every_time(phone):
    chat = Chat.open(phone, "pirate")
    first = chat.answer("w1 w2 w3", max_new_tokens=5)
    chat.answer("w9 w8 w7 w6", max_new_tokens=5)
    assert chat.answer("w1 w2 w3", max_new_tokens=5).tokens == first.tokens


def test_an_answer_ends_with_the_context(tiny_files):
    model = Model(*files_of(tiny_files))
    assert model.context == 64
    prompt = [7] * 60
    assert len(list(model.generate(prompt, 100))) == 5
    assert len(list(model.generate([7] * 64, 100))) == 1
    assert len(list(model.generate(prompt, 3))) == 3


@pytest.mark.parametrize("length", [0, 65])
def test_a_prompt_that_does_not_fit_is_refused_with_both_figures(tiny_files, length):
    model = Model(*files_of(tiny_files))
    with pytest.raises(InputError, match=f"has {length} tokens, the program takes 1 to 64"):
        next(model.generate([7] * length, 1))


@pytest.mark.parametrize("stop", [2, 46])
def test_the_programs_stop_tokens_and_the_prompt_formats_end_the_answer(phone, stop):
    chat = Chat.open(phone, None)
    chat = replace(chat, installed=replace(chat.installed, prompt=replace(PROMPT, stop_token_ids=(46,))))
    chosen = iter([29, 63, stop, 48])
    assert chat.answer("w1 w2 w3", choose=lambda _: next(chosen)).tokens == (29, 63)
    assert next(chosen) == 48


def test_a_chooser_sees_every_tokens_logits(tiny_files):
    model = Model(*files_of(tiny_files))
    shapes = []

    def least(logits):
        shapes.append(tuple(logits.shape))
        return int(logits.argmin())

    tokens = list(model.generate([7, 8], 2, least))
    assert shapes == [(64,), (64,)]
    assert tokens != list(model.generate([7, 8], 2))


def test_a_prompt_of_bytes_that_are_no_text_is_refused(phone):
    chat = Chat.open(phone, "pirate")
    with pytest.raises(InputError, match="the prompt is not UTF-8"):
        chat.answer(os.fsdecode(b"w1 \xff"))


def test_a_release_without_a_prompt_format_is_asked_in_plain_text(phone):
    chat = Chat.open(phone, "pirate")
    plain = replace(chat, installed=replace(chat.installed, prompt=None))
    assert plain.answer("w1 w2", max_new_tokens=1).prompt_tokens == 2


def test_an_adapter_that_is_not_installed_lists_those_that_are(phone):
    with pytest.raises(NotFound, match="robot") as caught:
        locate(phone, "robot")
    assert caught.value.hint == "installed: json, pirate"


def test_nothing_runs_from_a_directory_that_was_never_synced(tmp_path):
    with pytest.raises(NotFound, match="not a device directory"):
        locate(tmp_path, "pirate")


@pytest.mark.parametrize(
    ("name", "what"), [("foundation.ptd", "the foundation"), ("pirate.pte", r"adapter pirate@1\.0\.0")]
)
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_a_damaged_file_is_named_before_the_load_and_mended_by_a_sync(phone, site, tiny_files, name, what, damage):
    data = (tiny_files / name).read_bytes()
    path = DeviceStore(phone).path(Digest.of(data))
    path.chmod(0o644)
    if damage == "delete":
        path.unlink()
    else:
        changed = data[: len(data) // 2] if damage == "truncate" else data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
        path.write_bytes(changed)
    with pytest.raises(IntegrityError, match=what) as caught:
        Chat.open(phone, "pirate")
    assert caught.value.values["expected"]["digest"] == str(Digest.of(data))
    sync(DirectorySource(site.root), ["stable"], phone, OPTIONS)
    assert status(phone, verify=True).damage == ()
    assert Chat.open(phone, "pirate").answer("w1", max_new_tokens=1).tokens


def test_two_channels_with_different_builds_of_a_name_must_be_told_apart(phone, site, tiny_files):
    read = {path.name: path.read_bytes() for path in tiny_files.iterdir() if path.is_file()}
    line = site.line({"pirate": read["json.pte"]}, foundation=read["foundation.ptd"], base=read["base.pte"])
    site.release(2, line)
    site.offer(2, "beta")
    sync(DirectorySource(site.root), ["beta"], phone, OPTIONS)
    with pytest.raises(InputError, match="several channels"):
        locate(phone, "pirate")
    assert locate(phone, "pirate", "beta").program.digest == Digest.of(read["json.pte"])
    assert locate(phone, "json").channel == "stable"
    assert locate(phone, None).program.digest == Digest.of(read["base.pte"])
    with pytest.raises(NotFound, match="channel gamma"):
        locate(phone, "pirate", "gamma")


def test_a_release_without_a_tokenizer_says_so(phone, site, tiny_files):
    read = {path.name: path.read_bytes() for path in tiny_files.iterdir() if path.is_file()}
    line = site.line(
        {"pirate": read["pirate.pte"]}, foundation=read["foundation.ptd"], base=read["base.pte"], tokenizer=None
    )
    site.release(2, line)
    site.offer(2)
    sync(DirectorySource(site.root), ["stable"], phone, OPTIONS)
    with pytest.raises(InputError, match="no tokenizer"):
        Chat.open(phone, "pirate")


def test_another_foundation_is_refused_before_the_load_with_the_tensor_that_is_missing(tiny_files):
    with pytest.raises(IntegrityError, match="is not the foundation of the program") as caught:
        Model(*files_of(tiny_files, foundation="other.ptd"))
    assert len(caught.value.values["missing"]) == 1
    assert caught.value.values["missing"][0].startswith("tensor_")
    assert "F32 [64, 32]" in caught.value.message


def test_a_missing_foundation_is_told_before_it_ends_the_process(tiny_files):
    program, foundation = files_of(tiny_files)
    with pytest.raises(NotFound, match="and none was given"):
        diagnose(program, None)
    with pytest.raises(NotFound, match="the foundation is missing"):
        diagnose(program, replace(foundation, path=tiny_files / "absent.ptd"))


@pytest.mark.parametrize("name", ["base.pte", "foundation.ptd"])
@pytest.mark.parametrize("cut", [0, 7, 40, 0.5, -1])
def test_a_cut_file_is_told_by_its_header(tiny_files, tmp_path, name, cut):
    data = (tiny_files / name).read_bytes()
    for other in ("base.pte", "foundation.ptd"):
        (tmp_path / other).write_bytes((tiny_files / other).read_bytes())
    (tmp_path / name).write_bytes(data[: int(len(data) * cut) if isinstance(cut, float) else cut])
    what = "the program" if name == "base.pte" else "the foundation"
    with pytest.raises(IntegrityError, match=f"{what} is damaged"):
        diagnose(*files_of(tmp_path))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("Failed to load method forward, error: 0x:20", IntegrityError, "a tensor that its foundation does not hold"),
        ("Failed to load data map from t.ptd, error: 0x:24", IntegrityError, "the foundation is damaged"),
        ("Failed to load program, error: 0x:23", IntegrityError, "made for another ExecuTorch"),
        ("Failed to execute method forward, error: 0x2", IntegrityError, "no foundation was given"),
        ("Failed to load method forward, error: 0x:14", Unavailable, "an operator"),
        ("Failed to load method forward, error: 0x:21", Unavailable, "not enough memory"),
        ("something new", Unavailable, "something new"),
    ],
)
def test_the_runtimes_numbers_become_words(tiny_files, text, kind, words):
    error = explain(RuntimeError(text), *files_of(tiny_files))
    assert type(error) is kind
    assert words in error.message


def test_a_failure_of_the_runtime_is_laid_to_the_damaged_file_if_there_is_one(tiny_files):
    program, foundation = files_of(tiny_files)
    program = replace(program, digest=Digest.of((tiny_files / "base.pte").read_bytes()))
    foundation = replace(foundation, digest=Digest.of(b"what it should be"))
    error = explain(RuntimeError("error: 0x:20"), program, foundation)
    assert isinstance(error, IntegrityError)
    assert error.values["expected"] == str(foundation.digest)
    assert error.values["actual"] == str(Digest.of((tiny_files / "foundation.ptd").read_bytes()))


def test_real_failures_of_the_runtime_carry_the_numbers_that_are_explained(tiny_files, tmp_path):
    """What the words above rest on: the codes that ExecuTorch answers for each kind of damage."""
    from executorch.runtime import Runtime

    program, foundation = tiny_files / "base.pte", tiny_files / "foundation.ptd"
    cut = tmp_path / "cut"
    cut.write_bytes(foundation.read_bytes()[:-1])
    short = tmp_path / "short"
    short.write_bytes(program.read_bytes()[:-1])
    for code, paths in {
        "24": (program, cut),
        "23": (short, foundation),
        "20": (program, tiny_files / "other.ptd"),
    }.items():
        with pytest.raises(RuntimeError, match=f"0x:{code}"):
            Runtime.get().load_program(str(paths[0]), data_path=str(paths[1])).load_method("forward")


def test_logits_do_not_depend_on_how_the_prompt_is_cut(tiny_files):
    whole, by_token = (
        Session(*[file.path for file in files_of(tiny_files)]),
        Session(*[file.path for file in files_of(tiny_files)]),
    )
    tokens = [1, 9, 33, 7]
    expected = whole.feed(tokens)
    for token in tokens:
        actual = by_token.feed([token])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def offer_tested(site, tiny_files, number, expected, agreement=1.0):
    """A release whose pirate must answer `expected` after each of four tokens."""
    read = {path.name: path.read_bytes() for path in tiny_files.iterdir() if path.is_file()}
    test = SelfTest((Probe((1, 9, 33, 7), (0, 1, 2, 3), tuple(expected)),), agreement)
    line = site.line(
        {"pirate": read["pirate.pte"]},
        foundation=read["foundation.ptd"],
        base=read["base.pte"],
        pirate={"self_test": site.put(test.to_bytes())},
    )
    site.release(number, line)
    site.offer(number)


def forced_answers(tiny_files):
    session = Session(tiny_files / "pirate.pte", tiny_files / "foundation.ptd")
    return [int(session.feed([token]).argmax()) for token in (1, 9, 33, 7)]


def test_a_set_that_passes_its_self_test_becomes_active(phone, site, tiny_files):
    offer_tested(site, tiny_files, 2, forced_answers(tiny_files))
    result = sync(DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, self_test=replay))
    assert result.channels[0].release == 2


def test_a_set_that_fails_its_self_test_is_not_activated_and_not_tried_again(phone, site, tiny_files):
    wrong = [token ^ 1 for token in forced_answers(tiny_files)]
    offer_tested(site, tiny_files, 2, wrong)
    options = replace(OPTIONS, self_test=replay)
    with pytest.raises(IntegrityError, match="0 of 4 answers agree") as caught:
        sync(DirectorySource(site.root), ["stable"], phone, options)
    assert (caught.value.values["agreed"], caught.value.values["positions"]) == (0, 4)
    assert locate(phone, "json").release == 1
    again = sync(DirectorySource(site.root), ["stable"], phone, options)
    assert again.channels[0].outcome == "unchanged"
    assert locate(phone, "json").release == 1


def test_a_quantized_builds_self_test_may_disagree_a_little(phone, site, tiny_files):
    expected = forced_answers(tiny_files)
    offer_tested(site, tiny_files, 2, [expected[0] ^ 1, *expected[1:]], agreement=0.75)
    result = sync(DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, self_test=replay))
    assert result.channels[0].release == 2


def test_sampling_draws_from_the_likeliest_tokens_only():
    logits = torch.tensor([0.0, 3.0, 2.0, 1.0, -5.0])
    shares = torch.softmax(logits, 0)
    draw = Sampler.seeded(Sampling(temperature=1.0), 1)
    drawn = torch.bincount(torch.tensor([draw(logits) for _ in range(4000)]), minlength=5) / 4000
    torch.testing.assert_close(drawn, shares, atol=0.03, rtol=0)
    top = Sampler.seeded(Sampling(temperature=1.0, top_k=2), 1)
    assert {top(logits) for _ in range(200)} == {1, 2}
    nucleus = Sampler.seeded(Sampling(temperature=1.0, top_p=float(shares[1]) - 0.01), 1)
    assert {nucleus(logits) for _ in range(200)} == {1}
    both = Sampler.seeded(Sampling(temperature=1.0, top_p=float(shares[1]) + 0.01), 1)
    assert {both(logits) for _ in range(200)} == {1, 2}


def test_a_seed_draws_the_same_answer_again(phone):
    chat = Chat.open(phone, "json")
    hot = Sampling(temperature=5.0)
    answers = [chat.answer("w1 w2", max_new_tokens=8, choose=Sampler.seeded(hot, seed)).tokens for seed in (1, 1, 2, 3)]
    assert answers[0] == answers[1]
    assert len(set(answers)) > 1


def test_temperature_zero_is_greedy():
    assert Sampler.seeded(Sampling(), 0)(torch.tensor([1.0, 3.0, 3.0])) == 1
