"""What exists and what it links to. Nothing here imports torch, or the exporter.

The nouns are in `artifacts`: base, foundation, template, adapter version, build, release, channel. Every link between
them is a `digest`; a name is only a label, and a channel's arms are the one thing that moves.

Pure: `errors`, `digest`, `canonical`, `names`, `lineage`, `artifacts`; the file formats (`formats`) and what must hold
between files (`links`); the documents that devices read (`manifest`, `release`, `prompt`, `device_state`); the rules
(`rollout`, `plan` and its parts; `costing`, `comparing` and `budget` ask it for imagined devices). With I/O: `files`
(the only module that writes, syncs and renames), `blobs`, `database`, `catalog` (the only one that queries), `site`,
`signing`. `service.Registry` is the façade over all of it; `rolling.Rollout` moves one channel,
`signed_site.SignedSite` keeps the keys and writes what is public:

    registry = Registry.open(home)
    registry.create_release("stable", ["pirate@1.2.0"], share_bp=1000)
    registry.rollout("stable").widen(5000)
"""
