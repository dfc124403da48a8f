"""HTTP over the façade: the static tree that devices read, and a few questions and verbs for people and backends.

    uvicorn.run(create_app(registry, Settings()))       # `ptdock serve` (server.commands)

`tree` serves the files of `site/` and nothing else of the store; `conditions` holds HTTP's rules for that (RFC 9110),
pure. `api` answers the questions and `changes` the verbs, which need a token (`access`); `documents` is what the
OpenAPI document says about both. `observed` counts, logs and bounds everything, `problems` words every refusal. A
device needs none of this but the tree, which any web server can serve.
"""
