"""What a PEFT adapter means. Every field and every tensor is implemented, or refused by name with the way out.

The gate (`gate.check`) reads an adapter's directory against a foundation's card. Nothing in it imports torch, except
`pickled`, and that only on request.

- `directory`  the files: config, weights (single, sharded or pickled), attachments, what is left out
- `config`     adapter_config.json, and its `fields` one by one; `patterns` PEFT's name matching
- `names`      tensor names: prefixes, infixes, adapter names, foreign spellings; `sites` the tensors of each module
- `modules`    LoRA tensors become one `ModuleAdapter`: shapes, ranks, scaling; `fused` projections against split ones
- `replaced`   weights, biases and token rows instead of the base's; `complete` whether all that is promised is there
- `targets`    which modules the config means; the tensors decide, the config must agree
- `initial`    PiSSA and its kin, with the adapter as it was before training
- `copies`     base tensors saved along; `pin` the base that training saw; `chat` the tokenizer and chat template
- `effects`    values: finite, within the factors' dtype, of any effect
- `adapter`    the result; `findings` what there is to say about it

    checked = gate.check(Path("runs/pirate"), card)
    folded = fold(checked.accept(), card, weights)
"""
