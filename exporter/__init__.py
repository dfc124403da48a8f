"""How artifacts are made. An adapter's way through this package: check, fold, template, relink, link, publish.

- `base` reads a checkpoint, `recipe` says how it is exported, `architecture` what its decoder computes
- `peft` is the gate: what an adapter means, or everything that is wrong with it
- `fold` turns what was trained into the factors that programs hold, `nil` sees whether they change anything;
  `structure` says which factors there are, `specs` how people write that; `checking` is gate and fold in one
- `opened` reads a published adapter, `compare` measures what it does to its base, `changes` is one beside another
- `confined` runs chat templates and regular expressions from outside in a process that is ended in time
- `relocation` finds them in an exported program, `registry.relink` writes others there
- `derivation` says how each tensor of a foundation derives from its base; `retarget` makes the files of another
  fine-tune of a known base by that, without an export
- `foundation`, `module_foundation` and `publish` join all this with the registry
- `proof` runs what was published against PEFT on the base: `text_proof` with `probes`, `module_proof` with
  `module_probes`; `figures` come out, `reference` stands beside

Only `decoder`, `lora`, `lower`, `export` and their kin import torch, and nothing imports those before an export is due:

    published = publish(registry, Path("runs/pirate"), PublishOptions(foundation="smollm2", name="pirate"))
"""
