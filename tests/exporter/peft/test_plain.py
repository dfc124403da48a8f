from __future__ import annotations

from pathlib import Path

import numpy as np
from peft import PeftModel

from exporter.fold import fold
from exporter.peft.gate import check
from tests.exporter.adapters import card_of, llama, saved, trained


def deltas(peft_model: PeftModel) -> dict[str, np.ndarray]:
    """PEFT's own s*B*A per module, in fp64."""
    found = {}
    for name, module in peft_model.base_model.model.named_modules():
        if hasattr(module, "get_delta_weight") and "default" in getattr(module, "lora_A", {}):
            found[name] = module.double().get_delta_weight("default").detach().numpy()
            module.float()
    return found


def test_every_linear_module_folds_to_pefts_delta(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    peft_model = trained(
        model,
        target_modules="all-linear",
        rank_pattern={"layers.0.self_attn.q_proj": 2, "down_proj": 7},
        alpha_pattern={"layers.0.self_attn.q_proj": 16, "o_proj": 3},
    )
    checked = check(saved(peft_model, tmp_path), card, base_fingerprint=card.base)
    assert checked.findings == ()
    adapter = checked.accept()
    folded = fold(adapter, card)
    expected = deltas(peft_model)
    assert adapter.modules.keys() == expected.keys() and len(expected) == 14
    for name, delta in expected.items():
        a, b = (np.frombuffer(folded.tensors[f"{name}.lora_{part}"].data, np.float32) for part in "AB")
        rank = adapter.modules[name].structure.lora
        product = b.reshape(-1, rank).astype(np.float64) @ a.reshape(rank, -1)
        assert np.abs(product - delta).max() < 1e-6
    assert adapter.modules["model.layers.0.self_attn.q_proj"].scaling == 8.0
    assert adapter.modules["model.layers.1.self_attn.q_proj"].scaling == 2.0
    assert adapter.modules["model.layers.1.self_attn.o_proj"].scaling == 0.75
