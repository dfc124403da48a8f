"""What is lowered holds its weights once, however often ExecuTorch copies the graph around them."""

from __future__ import annotations

import copy

import torch
from torch import nn

from exporter.lower import Example, share_weights, trace


def test_copies_of_a_program_share_its_weights_and_nothing_else() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval().requires_grad_(requires_grad=False)
    program = trace(module, Example((torch.ones(2, 4),), None, {}))
    share_weights(program)
    twin = copy.deepcopy(program)
    shared = {name for name in program.state_dict if twin.state_dict[name] is program.state_dict[name]}
    assert shared == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert twin.state_dict["0.weight"].data_ptr() == module[0].weight.data_ptr()
    assert twin.graph is not program.graph


def test_sharing_changes_neither_the_weights_nor_whether_they_want_gradients() -> None:
    module = nn.Linear(4, 3)
    module.bias.requires_grad_(requires_grad=False)
    program = trace(module, Example((torch.ones(2, 4),), None, {}))
    share_weights(program)
    for name, weight in module.named_parameters():
        assert torch.equal(program.state_dict[name], weight)
        assert program.state_dict[name].requires_grad is weight.requires_grad
