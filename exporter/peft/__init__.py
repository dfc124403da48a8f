"""What a PEFT adapter means. Every field and every tensor is implemented, or refused by name with the way out.

The gate (`gate.check`) reads an adapter's directory against a foundation's card. Nothing in it imports torch, except
`pickled`, and that only on request.

- `directory`  the files: config, weights (single, sharded or pickled), attachments, what is left out
- `config`     adapter_config.json, field by field; `patterns` PEFT's name matching
- `names`      tensor names: prefixes, infixes, adapter names, foreign spellings
- `modules`    tensors of one module become one `ModuleAdapter`: shapes, ranks, scaling, variants
- `tokenizer`  the directory's tokenizer against the foundation's
- `adapter`    the result; `findings` what there is to say about it

    checked = gate.check(Path("runs/pirate"), card)
    folded = fold(checked.accept(), card, weights)
"""
