"""Train a LoRA adapter with PEFT in a few seconds: AdamW over a dozen short dialogues, loss on the answers only."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from pin import PinBase
from transformers import AutoModelForCausalLM, AutoTokenizer
from voices import Voice

BATCH = 2
IGNORED = -100  # the label that cross entropy skips


def train(base: Path, out: Path, voice: Voice) -> float:
    """Train an adapter of `base` on the voice's dialogues and save it in `out`.

    Answers the mean loss of the last epoch, in nats per token. The same machine makes the same bytes again.
    """
    torch.manual_seed(0)
    torch.set_num_threads(2)  # another number of threads splits the sums otherwise, and gives other last bits
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(
        task_type="CAUSAL_LM", r=voice.rank, lora_alpha=2 * voice.rank, target_modules=list(voice.modules)
    )
    adapted = get_peft_model(model, config)
    examples = [encode(tokenizer, question, answer) for question, answer in voice.dialogues()]
    loss = descend(adapted, examples, voice.steps, voice.rate)
    adapted.to(getattr(torch, voice.dtype)).save_pretrained(out)
    sort_targets(out / "adapter_config.json")
    PinBase(base).write(out)
    return loss


def encode(tokenizer: Any, question: str, answer: str) -> tuple[list[int], list[int]]:
    """Token ids of one dialogue and its labels; the labels of the question are ignored."""
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    answered = tokenizer(answer + tokenizer.eos_token).input_ids
    return asked + answered, [IGNORED] * len(asked) + answered


def collate(examples: list[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
    """Right-padded tensors of shape (batch, longest)."""
    ids, labels = zip(*examples, strict=True)
    pad = torch.nn.utils.rnn.pad_sequence
    tokens = [torch.tensor(row) for row in ids]
    return {
        "input_ids": pad(tokens, batch_first=True),
        "attention_mask": pad([torch.ones_like(row) for row in tokens], batch_first=True),
        "labels": pad([torch.tensor(row) for row in labels], batch_first=True, padding_value=IGNORED),
    }


def descend(model: PeftModel, examples: list[tuple[list[int], list[int]]], steps: int, rate: float) -> float:
    """`steps` of AdamW, the rate falling linearly to nothing; answers the mean loss of the last epoch."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    batches = [collate(examples[start : start + BATCH]) for start in range(0, len(examples), BATCH)]
    losses: list[float] = []
    model.train()
    for batch in itertools.islice(itertools.cycle(batches), steps):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    last = losses[-len(batches) :]
    return sum(last) / len(last)


def sort_targets(path: Path) -> None:
    """PEFT writes the target modules in the order of a set, another one in each process: sort them."""
    config = json.loads(path.read_text())
    config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
