"""The command line: one module a command, all printing through `console` and showing progress by `progress`.

A command reads its arguments, calls the library and prints what it returns. Imports of the library are lazy, so that
`veracausa --help` does not wait for torch.
"""
