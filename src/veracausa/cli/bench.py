"""`veracausa bench`: the ratios this project promises."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The ratios this project promises, measured side by side in one run.")

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


@app.command()
def wire(
    json: Json = False,
    out: Out = None,
    repeats: Repeats = 5,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", metavar="NAME", help="Only threads, processes, tcp or grpc; may be repeated."),
    ] = None,
    epoch: Annotated[
        bool, typer.Option("--epoch", help="An epoch of MNIST across three sites, beside one process, instead.")
    ] = False,
) -> None:
    """What a message costs between threads, processes and organisations, beside a copy, bare FLARE and bare gRPC."""
    from veracausa.bench import wire as messages
    from veracausa.bench import wire_epoch
    from veracausa.bench.rows import print_rows, write_rows

    name = "wire-epoch" if epoch else "wire"
    rows = wire_epoch.run(repeats) if epoch else messages.run(repeats, link or ())
    write_rows(name, rows, out)
    print_rows(name, rows, json)


@app.command()
def runtime(
    json: Json = False,
    out: Out = None,
    repeats: Repeats = 5,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only this case; may be repeated.")
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Where the models compute.")] = Device.auto,
    precision: Annotated[Precision, typer.Option("--precision", help="On both sides alike.")] = Precision.fp32,
) -> None:
    """What a federation costs, beside the same graph trained in one place by plain PyTorch."""
    from veracausa.bench.rows import print_rows, write_rows
    from veracausa.bench.runtime import run

    rows = run(case or None, repeats, device.value, precision.value)
    write_rows("runtime", rows, out)
    print_rows("runtime", rows, json)


@app.command()
def causshield(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Rounds of whole exchanges; 3 on a GPU, else 1.")
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Where the models compute.")] = Device.auto,
    precision: Annotated[Precision, typer.Option("--precision", help="On both sides alike.")] = Precision.fp32,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the inner iteration (a GPU).")] = False,
    width: Annotated[
        int | None, typer.Option("--width", min=1, help="Channels of the ResNet-18; 64 on a GPU, else 16.")
    ] = None,
    defense: Annotated[
        list[str] | None, typer.Option("--defense", metavar="NAME", help="Only this defense; may be repeated.")
    ] = None,
) -> None:
    """What CausShield costs beside a plain exchange, by phase, and what every other defense costs."""
    from veracausa.bench.causshield import run
    from veracausa.bench.rows import print_rows, write_rows

    rows = run(repeats, device.value, precision.value, compiled, width, defense or None)
    write_rows("causshield", rows, out)
    print_rows("causshield", rows, json)


@app.command()
def discovery(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds of each case of growth.")] = 3,
    method: Annotated[
        list[str] | None, typer.Option("--method", metavar="NAME", help="Only this baseline; may be repeated.")
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", min=1, help="Seconds a baseline may take.")] = 120.0,
    attributes: Annotated[
        int, typer.Option("--attributes", min=6, help="Of the graph that methods are timed on.")
    ] = 15,
) -> None:
    """How a step of VFedCD grows with attributes, parties and rows, and what other methods take on the same data."""
    from veracausa.bench.discovery import BASELINES, run
    from veracausa.bench.rows import print_rows, write_rows

    rows = run(repeats, methods=method or BASELINES, attributes=attributes, time_limit=time_limit)
    write_rows("discovery", rows, out)
    print_rows("discovery", rows, json)


@app.command()
def dispatch(
    json: Json = False,
    out: Out = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds; the least disturbed one counts.")] = 7,
    n: Annotated[int, typer.Option("--n", min=1, help="Rows of a batch.")] = 1000,
    d: Annotated[int, typer.Option("--d", min=2, help="Attributes of all parties together.")] = 15,
    parties: Annotated[int, typer.Option("--parties", min=2, help="They have as many attributes each.")] = 3,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", metavar="NAME", help="Only this encryption; may be repeated.")
    ] = None,
) -> None:
    """What a step on encrypted columns costs, beside the published rate and beside Paillier number by number."""
    from veracausa.bench.dispatch import Case, run
    from veracausa.bench.rows import print_rows, write_rows

    rows = run(Case(n, d, parties), backend, repeats)
    write_rows("dispatch", rows, out)
    print_rows("dispatch", rows, json)


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
    from veracausa.bench.align import Case, run
    from veracausa.bench.rows import print_rows, write_rows
    from veracausa.errors import InputError

    both = ids // 2 if common is None else common
    if both > ids:
        raise InputError(f"--common {both}: a party has {ids} ids")
    rows = run([Case(ids, both), Case(ids, both, mode="active"), Case(ids, both, 3)], repeats, workers, others)
    write_rows("align", rows, out)
    print_rows("align", rows, json)
