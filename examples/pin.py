"""Pin an adapter to the weights that it is trained on, from any transformers or TRL trainer.

    Trainer(model, …, callbacks=[PinBase("models/smollm2")])

writes ptdock.json beside every adapter that is saved. `ptdock adapter publish` then refuses a foundation of other
weights by name, instead of warning that nothing is pinned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from exporter.base import fingerprint, read_base
from exporter.peft.pin import FILE, Pin


class PinBase(TrainerCallback):  # type: ignore[misc] # transformers has no types
    """Knows a base by its tensors' digests; `lineage` is what else to remember of the run."""

    def __init__(self, base: str | Path, **lineage: Any) -> None:
        with read_base(Path(base)) as checkpoint:
            self._pin = Pin(fingerprint(checkpoint.tensors), lineage).to_bytes()

    def write(self, directory: Path) -> None:
        """Pin the adapter in this directory."""
        (directory / FILE).write_bytes(self._pin)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """Pin the checkpoint that was just saved."""
        self.write(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002 - as above
        """Pin what `trainer.save_model()` will write."""
        Path(args.output_dir).mkdir(parents=True, exist_ok=True)
        self.write(Path(args.output_dir))
