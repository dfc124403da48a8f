"""The reference device client: sync, verify, run and swap, in Python; the model for clients in other languages.

A device holds a directory. A sync reads a channel's manifest from the static tree that a registry publishes (a
directory, or any web server), computes the device's own plan, fetches what is missing, and makes the new set active
by one rename. Nothing is loaded that was not checked against its digest.

    from device.source import open_source
    from device.sync import sync

    result = sync(open_source("site"), ["stable"], Path("phone"))

* `source`, `http`     where documents and blobs come from; what they answer is never believed
* `intake`, `checks`   bytes become visible only whole and right, and are believed only while untouched
* `fetching`           the cheapest form first: `patch` (foundations by pieces), `forms` (programs from factors)
* `store`              the device's directory; `sets`, `activation`: what a set needs, how a channel's state changes
* `sync`, `result`     all of it together; `manage`: status and rollback; `collect`, `uses`: making room
* `installed`          the checked files of an adapter; `doctor`: why two files do not load together
* `run`, `selftest`    the two modules that import torch and ExecuTorch
"""
