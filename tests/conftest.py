"""What all tests share: tiny bases, exported once per test run, and stores made from them.

Several pytest-xdist workers share one export: the first takes a lock and makes it, the others find it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A shell that starts the tests in the background lets them ignore SIGINT, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no fault of the code: examples are the same each time, and none is judged by the clock.
settings.register_profile("ptdock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ptdock")

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }} {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant {% endif %}"
)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for the whole test run, whichever worker asks."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    path = root / "shared"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="session")
def made_once(shared: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    """`made_once(name, make)`: the directory `name`, filled by `make(directory)` by whoever comes first."""

    def once(name: str, make: Callable[[Path], None]) -> Path:
        path = shared / name
        with _locked(path):
            if not path.exists():
                work = shared / f"{name}.part"
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir()
                make(work)
                work.rename(path)
        return path

    return once


def save_tokenizer(directory: Path, words: int = 64) -> None:
    """A word-level tokenizer of `words` tokens with a chat template, as transformers would save it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<unk>", "<s>", "</s>", "user", "assistant", "system"]
    vocabulary = {word: index for index, word in enumerate([*special, *(f"w{i}" for i in range(words - len(special)))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE, "model_max_length": 128}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def save_llama(directory: Path, seed: int = 0, **changes: object) -> None:
    """The tiny base T of adapter-semantics.md: 2 layers of width 32, 4 heads, 2 key-value heads, vocabulary 64."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    torch.manual_seed(seed)
    config = LlamaConfig(**{**sizes, **heads, **tokens, "tie_word_embeddings": False, **changes})
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):  # left at ones and zeros they would hide faults
                parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2)
            else:
                parameter.mul_(4)  # the default initialisation is so small that attention would hardly matter
    model.save_pretrained(directory)


@pytest.fixture(scope="session")
def tiny_base(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The checkpoint directory of T, untied, with a tokenizer."""

    def make(directory: Path) -> None:
        save_llama(directory)
        save_tokenizer(directory)

    return made_once("tiny-base", make)


BASES: dict[str, dict[str, object]] = {
    "plain": {},
    "biased": {"attention_bias": True},
    "tied": {"tie_word_embeddings": True},
}
"""The variants of T that stores are made of, each under its own foundation name."""


@pytest.fixture(scope="session")
def bases(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A directory with one checkpoint for each of BASES."""

    def make(directory: Path) -> None:
        for name, changes in BASES.items():
            (directory / name).mkdir()
            save_llama(directory / name, **changes)
            save_tokenizer(directory / name)

    return made_once("bases", make)


@pytest.fixture(scope="session")
def exported_home(made_once: Callable[[str, Callable[[Path], None]], Path], bases: Path) -> Path:
    """A store in which each of BASES is exported as a foundation; never written to by a test."""

    def make(directory: Path) -> None:
        from exporter.foundation import ExportOptions, export_foundation
        from registry.service import Registry

        registry = Registry.init(directory)
        for name in BASES:
            export_foundation(registry, bases / name, name, ExportOptions(context=64))

    return made_once("exported-home", make)


@pytest.fixture(scope="session")
def worker_home(exported_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This worker's own copy of the exported store: its tests share templates, under adapter names of their own."""
    return Path(shutil.copytree(exported_home, tmp_path_factory.mktemp("worker") / "home"))


@pytest.fixture
def tiny_store(exported_home: Path, tmp_path: Path) -> Path:
    """A fresh copy of the exported store, for tests that change or damage it."""
    return Path(shutil.copytree(exported_home, tmp_path / "home"))
