"""`python -m veracausa` is the command `veracausa`."""

from veracausa.cli.main import program

if __name__ == "__main__":
    program()
