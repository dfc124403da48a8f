"""The catalog: the only place that queries the database. Rows stay here; frozen values go out.

One module per part: `content` (blobs), `foundations` (bases, foundations, templates), `adapters` (versions and builds),
`channels` (releases, channels, manifests), `log` (the audit events). A function that reads takes a session; one that
writes takes the `log.Change` that also records the event, so that no change can forget it.
"""
