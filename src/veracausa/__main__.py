"""The command `veracausa`, also as `python -m veracausa`."""

import sys


def program() -> None:
    """Load the command line and run it."""
    try:
        from veracausa.cli.main import program as run
    except KeyboardInterrupt:
        sys.stderr.write("veracausa: stopped by Ctrl-C\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    program()
