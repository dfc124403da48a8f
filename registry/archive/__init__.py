"""Archives: what a registry holds of some adapters, or all of it, in one file that another registry can take in.

    save(registry's session, store, contents, Path("pirate.tar"))      # saving
    load(session, store, Path("pirate.tar"))                            # loading

- `contents`   what an archive holds, as values
- `document`   the same as canonical JSON, and read back strictly
- `tar`        the file: a tar of an OCI image layout, equal contents give equal bytes
- `saving`     a selection with everything that it is linked to
- `loading`    an archive is input like any other: names, sizes, digests and links are checked before a row is written

The layout's one manifest (https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md) has the document as its
config and every blob as a layer, so OCI tools copy archives to and from container registries as they are. Releases and
channels are a registry's own and stay with it.
"""
