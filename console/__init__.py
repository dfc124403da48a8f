"""The command line's own parts; `cli.py` at the top level puts them together.

- `verbs`      the classes of commands: each takes --json and --quiet, nouns load when they are named
- `app`        what a command gets: the store, a way to answer, a way to say what goes on
- `failures`   the one place where errors become messages, documents and exit codes
- `progress`   phases and bytes on standard error
- `render`     sizes, times, tables and bars for people
- `plain`      plain files for people and apps, written whole
- `documents`  the registry's values as the JSON that scripts read
- `options`    parameter types and options that several commands share
- `commands`   one module per noun; a verb parses, makes one call and answers

Modules here import click and the registry's small pure modules when they load; everything else is imported by the
command that needs it, so that `ptdock --help` stays fast.
"""
