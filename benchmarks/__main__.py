"""The command line of the benchmarks: `python -m benchmarks NAME`, which is also `veracausa bench NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.errors import InputError

if TYPE_CHECKING:
    from benchmarks.rows import Row

app = typer.Typer(
    no_args_is_help=True,
    help="The ratios this project promises, measured side by side in one run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the rows for machines, as the last line.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the rows as JSON and Markdown into DIR.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Rounds of each side; the median counts.")]


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Precision(StrEnum):
    fp32 = "fp32"
    bf16 = "bf16"


On = Annotated[Device, typer.Option("--device", help="Where the models compute.")]
In = Annotated[Precision, typer.Option("--precision", help="On both sides alike.")]


def several(option: str, what: str) -> typer.models.OptionInfo:
    """An option that may be repeated."""
    found: typer.models.OptionInfo = typer.Option(option, metavar="NAME", help=f"Only {what}; may be repeated.")
    return found


def show(name: str, rows: Sequence[Row], out: Path | None, json: bool) -> None:
    from benchmarks.rows import print_rows, write_rows

    write_rows(name, rows, out)
    print_rows(name, rows, json)


@app.command()
def wire(
    json: Json = False,
    out: Out = None,
    repeats: Repeats = 5,
    link: Annotated[list[str] | None, several("--link", "threads, processes, tcp or grpc")] = None,
    epoch: Annotated[
        bool, typer.Option("--epoch", help="An epoch of MNIST across three sites, beside one process, instead.")
    ] = False,
) -> None:
    """What a message costs between threads, processes and organisations, beside a copy, bare FLARE and bare gRPC."""
    from benchmarks.wire import run, run_epoch

    if epoch:
        show("wire-epoch", run_epoch(repeats), out, json)
    else:
        show("wire", run(repeats, link or ()), out, json)


@app.command()
def runtime(
    json: Json = False,
    out: Out = None,
    repeats: Repeats = 5,
    case: Annotated[list[str] | None, several("--case", "this case")] = None,
    device: On = Device.auto,
    precision: In = Precision.fp32,
) -> None:
    """What a federation costs, beside the same graph trained in one place by plain PyTorch."""
    from benchmarks.runtime import run

    show("runtime", run(case or None, repeats, device.value, precision.value), out, json)


@app.command()
def causshield(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Rounds of whole exchanges; 3 on a GPU, else 1.")
    ] = None,
    device: On = Device.auto,
    precision: In = Precision.fp32,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the inner iteration (a GPU).")] = False,
    width: Annotated[
        int | None, typer.Option("--width", min=1, help="Channels of the ResNet-18; 64 on a GPU, else 16.")
    ] = None,
    defense: Annotated[list[str] | None, several("--defense", "this defense")] = None,
) -> None:
    """What CausShield costs beside a plain exchange, by phase, and what every other defense costs."""
    from benchmarks.causshield import run

    show("causshield", run(repeats, device.value, precision.value, compiled, width, defense or None), out, json)


@app.command()
def discovery(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds of each case of growth.")] = 3,
    method: Annotated[list[str] | None, several("--method", "this baseline")] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", min=1, help="Seconds a baseline may take.")] = 120.0,
    attributes: Annotated[
        int, typer.Option("--attributes", min=6, help="Of the graph that methods are timed on.")
    ] = 15,
) -> None:
    """How a step of VFedCD grows with attributes, parties and rows, and what other methods take on the same data."""
    from benchmarks.discovery import BASELINES, run

    rows = run(repeats, methods=method or BASELINES, attributes=attributes, time_limit=time_limit)
    show("discovery", rows, out, json)


@app.command()
def dispatch(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds; the least disturbed one counts.")] = 7,
    n: Annotated[int, typer.Option("--n", min=1, help="Rows of a batch.")] = 1000,
    d: Annotated[int, typer.Option("--d", min=2, help="Attributes of all parties together.")] = 15,
    parties: Annotated[int, typer.Option("--parties", min=2, help="They have as many attributes each.")] = 3,
    backend: Annotated[list[str] | None, several("--backend", "this encryption")] = None,
) -> None:
    """What a step on encrypted columns costs, beside the published rate and beside Paillier number by number."""
    from benchmarks.dispatch import Case, run

    show("dispatch", run(Case(n, d, parties), backend, repeats), out, json)


@app.command()
def moments(
    json: Json = False,
    out: Out = None,
    features: Annotated[
        list[int] | None, typer.Option("--features", min=1, help="Of each party; may be repeated. Default: 64, 512.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows that are summed up.")] = 20_000,
    whole: Annotated[bool, typer.Option("--whole", help="Run wide cases whole, not a timed share of them.")] = False,
) -> None:
    """What encrypted sums over rows cost between two parties, beside the plaintext twin."""
    from benchmarks.moments import MomentCase, run

    cases = [MomentCase(n, rows, queries=0 if whole or n <= 128 else 4) for n in features or (64, 512)]
    show("moments", run(cases), out, json)


@app.command("discovery_sums")
def discovery_sums(
    json: Json = False,
    out: Out = None,
    group: Annotated[
        list[str] | None, several("--group", "the cases asked for, their growth, or a large one: asked, growth, large")
    ] = None,
) -> None:
    """What a discovery from encrypted sums costs between processes, beside the same table in one place."""
    from benchmarks.discovery_sums import run

    groups = group or ["asked"]
    show("discovery_sums" if groups == ["asked"] else f"discovery_sums_{'_'.join(groups)}", run(groups), out, json)


@app.command()
def scale(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds; the median counts.")] = 3,
    columns: Annotated[int, typer.Option("--columns", min=1, help="Of a party's table.")] = 10,
    block_rows: Annotated[int, typer.Option("--block-rows", min=128, help="Rows of a block.")] = 8192,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Of the training that the block is part of.")] = 10_000_000,
) -> None:
    """What a block of rows costs a party of blind training: reading, mapping, and sums, encrypted and not."""
    from benchmarks.scale import BlockCase, run

    show("scale", run(BlockCase(columns, block_rows, rows), repeats), out, json)


@app.command()
def align(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds of each case; the median counts.")] = 1,
    ids: Annotated[int, typer.Option("--ids", min=1, help="Of each party.")] = 100_000,
    common: Annotated[int | None, typer.Option("--common", min=0, help="That all have; default: half of them.")] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Processes a party that mask ids; default: the cores, shared."),
    ] = None,
    others: Annotated[bool, typer.Option("--others/--no-others", help="Also time what is installed beside.")] = True,
) -> None:
    """What private set intersection costs between two and three parties, beside plain sets and openmined-psi."""
    from benchmarks.align import Case, run

    both = ids // 2 if common is None else common
    if both > ids:
        raise InputError(f"--common {both}: a party has {ids} ids")
    cases = [Case(ids, both), Case(ids, both, mode="active"), Case(ids, both, 3)]
    show("align", run(cases, repeats, workers, others), out, json)


if __name__ == "__main__":
    import sys

    from veracausa.cli.main import program

    sys.argv[1:1] = ["bench"]  # one command line, so that what goes wrong is one sentence here, too
    program()
