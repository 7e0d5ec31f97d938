"""`veracausa discover`: from columns to a drawn causal graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from veracausa.cli.interruption import GoOn, resumable
from veracausa.cli.track import Track, tracked
from veracausa.cli.watch import Watch, WatchPort, watched
from veracausa.discovery import DEFAULT_METHOD
from veracausa.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from veracausa.discovery.discover import DiscoveryRun
    from veracausa.discovery.job import DiscoveryJob

FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".npz", ".npy")
ENGINES = ("federated", "floating", "one place")
GROUPS = ("model", "search", "protection")
"""A method's groups of settings."""


def discover(
    table: Annotated[
        Path | None,
        typer.Argument(metavar="DATA.csv", help="A table with all columns, or a run's config.toml to repeat or vary."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME", help="A known data set instead: synthetic, sachs, syntren, …"),
    ] = None,
    party: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COL,COL", help="A party and its columns, or its own file; repeatable."),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="COLUMN", help="The column that names a row, in every party's file.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="EDGES.csv", help="The true edges (source,target), to compare with.")
    ] = None,
    required: Annotated[Path | None, typer.Option(metavar="EDGES.csv", help="Edges that the graph must have.")] = None,
    forbidden: Annotated[Path | None, typer.Option(metavar="EDGES.csv", help="Edges that it must not have.")] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="COL,COL", help="Columns that come no later than those of the next --tier; repeatable."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"Default: {DEFAULT_METHOD}. Others: moments, vfedcd, notears, dagma, …")
    ] = None,
    networks: Annotated[
        bool,
        typer.Option(
            "--networks",
            help="With auto: train VFedCD's networks too, in minutes. Between parties they open features of every row.",
        ),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="federated: parties exchange messages; floating: in one place. Default: by the parties."),
    ] = None,
    encryption: Annotated[str | None, typer.Option(help="What protects the messages; none: a simulation.")] = None,
    bootstrap: Annotated[
        int | None, typer.Option(min=0, help="So many resamples of the rows, for the confidence of edges.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="K=V", help="A setting of the method, or data.K=V of the data; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For all that is drawn; default: 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: runs/NAME, numbered if taken.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    watch: Watch = False,
    watch_port: WatchPort = None,
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as the last line.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Only write a made-up table to try, patients.csv, and its true edges.")
    ] = False,
) -> None:
    """Learn one causal graph over the columns of one party or of several, and draw it.

    Writes a run folder: edges.csv, graph.graphml, summary.json and a page, report.html.
    A graph is what these columns and the method's assumptions allow; it is not proof of a cause.
    """
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.discovery.discover import DiscoveryRun, run_job
    from veracausa.discovery.job import read_job

    options = (data, party, truth, required, forbidden, settings, on, encryption, engine, method, bootstrap, seed, tier)
    bare = not networks and all(option is None or option == [] for option in options)
    if example:
        if not bare or table is not None:
            raise InputError("--example: it writes a table and ends; leave the other options to the next command")
        _write_example(out or Path())
        return
    if resume and out is not None and table is None and bare:
        job = read_job(out / "config.toml")
    elif table is not None and table.suffix == ".toml":
        if any(
            option not in (None, []) for option in (data, party, truth, required, forbidden, on, engine, method, tier)
        ):
            raise InputError(
                f"{table}: a job says itself what its data and its method are; leave these options out, or change a "
                "copy of it. --set, --bootstrap, --networks, --encryption and --seed may be laid over it"
            )
        job = _laid_over(read_job(table), encryption, bootstrap, networks, settings or (), seed)
    else:
        chosen = {"engine": engine, "encryption": encryption, "bootstrap": bootstrap, "tiers": _tiers(tier or ())}
        edges = (truth, required, forbidden)
        chosen |= {"networks": True} if networks else {}
        job = _job(table, data, party or (), on, edges, method or DEFAULT_METHOD, chosen, settings or (), seed or 0)
        _check_settings(job, given=method is not None)
    go_on = GoOn()
    with (
        resumable(go_on),
        ProgressDisplay() as progress,
        watched(progress, watch, watch_port, "veracausa discover") as observer,
        tracked(go_on.heard(observer), track) as heard,
    ):
        run = run_job(job, out, resume, heard)
    assert isinstance(run, DiscoveryRun)
    if as_json:
        summary = {name: value for name, value in run.summary.items() if name != "true_edge_list"}
        console.print_json_line({**summary, "run": str(run.path)})
    else:
        print_discovery(run)


def _write_example(folder: Path) -> None:
    from veracausa.cli import console
    from veracausa.data.causal.patients import write_example

    folder.mkdir(parents=True, exist_ok=True)
    made, edges = write_example(folder)
    console.out.print(f"{made}: made-up patients; {edges}: what causes what among them.", markup=False)
    parties = "--party hospital=age,bmi,dose --party lab=crp,hba1c,ldl"
    console.out.print(f"\nveracausa discover {made} {parties} --truth {edges}", markup=False, soft_wrap=True)


def _job(
    table: Path | None,
    data: str | None,
    party: Sequence[str],
    on: str | None,
    edges: tuple[Path | None, Path | None, Path | None],
    method: str,
    chosen: Mapping[str, Any],
    settings: Sequence[str],
    seed: int,
) -> DiscoveryJob:
    from veracausa.discovery.job import DiscoveryJob, read_edges

    own, source = _settings(settings)
    held = _parties(party)
    files = {name: value for name, value in held.items() if value.lower().endswith(FILES)}
    where: dict[str, Any]
    if files:
        if table is not None or data is not None or len(files) < len(held):
            raise InputError(
                "--party: give every party its file and no table beside them, or one table and its columns"
            )
        where = {"files": {name: str(Path(path).absolute()) for name, path in files.items()}, "on": on, **source}
        name = "discovery"
    elif (table is None) == (data is None):
        raise InputError("give a table, DATA.csv, or a known one by --data NAME, or a file to every --party")
    elif table is not None:
        if table.is_dir():
            raise InputError(f"{table}: is a folder; name the file in it that holds the table")
        if not table.is_file():
            raise InputError(f"{table}: no such file; correct the path")
        where, name = {"name": "table", "path": str(table.absolute()), "id": on, **source}, table.stem
    else:
        where, name = {"name": data, **source}, str(data)
        if data == "synthetic" or data == "bnlearn":
            where.setdefault("seed", seed)
    parties = {} if files else {name: tuple(filter(None, map(str.strip, c.split(",")))) for name, c in held.items()}
    true, must, never = (read_edges(path) if path is not None else None for path in edges)
    return DiscoveryJob(
        name=name,
        seed=seed,
        method=method,
        data={key: value for key, value in where.items() if value is not None},
        parties=parties,
        truth=true,
        required=must or [],
        forbidden=never or [],
        settings={**own, **_understood(method, chosen)},
    )


def _laid_over(
    job: DiscoveryJob,
    encryption: str | None,
    bootstrap: int | None,
    networks: bool,
    given: Sequence[str],
    seed: int | None,
) -> DiscoveryJob:
    """The job with these options in place of what it says."""
    own, source = _settings(given)
    chosen = {"encryption": encryption, "bootstrap": bootstrap, "networks": True if networks else None}
    settings: dict[str, Any] = dict(job.settings)
    for name, value in {**own, **_understood(job.method, chosen)}.items():
        settings[name] = {**settings.get(name, {}), **value} if name in GROUPS else value
    changes = {"data": {**job.data, **source}, "settings": settings, "seed": job.seed if seed is None else seed}
    return job.model_copy(update=changes)


def _understood(method: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as settings of the method."""
    from veracausa.discovery.methods import methods

    given = {name: value for name, value in chosen.items() if value is not None}
    if method not in methods.names() and method.replace("-", "_") not in methods.names():
        return given  # it is refused where the job is read
    known = methods.options(method).model_fields
    engine = given.get("engine", "federated")
    if engine not in ENGINES:
        raise InputError(f"--engine {engine}: must be federated or floating")
    if "engine" in given and "engine" not in known:
        if given["engine"] != "floating":
            raise InputError(f"--engine {given['engine']}: {method} needs all columns in one place; use floating")
        del given["engine"]
    elif given.get("engine") == "floating":
        given["engine"] = _in_one_place(known["engine"].annotation)
    for option, name in (("--tier", "tiers"), ("--networks", "networks")):
        if name in given and name not in known:
            able = [other for other in methods.names() if name in methods.options(other).model_fields]
            fix = f"take --method {able[0]}" if able else "leave it out"
            raise InputError(f"{option}: {method} does not know it; {fix}")
    return given


def _in_one_place(choices: Any) -> str:
    """What a method calls the engine that has all columns in one place: `floating`, or the choice that is left."""
    words = {word for part in (choices, *get_args(choices)) for word in get_args(part) if isinstance(word, str)}
    others = sorted(words - {"federated"})
    return "floating" if "floating" in words or len(others) != 1 else others[0]


def _check_settings(job: DiscoveryJob, given: bool) -> None:
    """Without --method, a setting of VFedCD asks for the method that the default was before."""
    from veracausa.discovery.methods import methods

    if given or job.method == "vfedcd":
        return
    own, theirs = (methods.options(name).model_fields for name in (job.method, "vfedcd"))
    for name in job.settings:
        if name in own or get_close_matches(name, own):
            continue
        if name in theirs:
            raise InputError(f"--set {name}: a setting of vfedcd, and the default is {job.method}; add --method vfedcd")
        if near := get_close_matches(name, theirs, 1):
            raise InputError(f"--set {name}: no such setting; {near[0]!r} is one of vfedcd, so add --method vfedcd")


def _tiers(given: Sequence[str]) -> list[list[str]] | None:
    """Lists of columns, those of the earliest tier first."""
    tiers = [[name for name in map(str.strip, text.split(",")) if name] for text in given]
    if any(not tier for tier in tiers):
        raise InputError("--tier: write it as COLUMN,COLUMN, from the earliest tier to the latest")
    named = [name for tier in tiers for name in tier]
    for name in named:
        if named.count(name) > 1:
            raise InputError(f"--tier: {name!r} is named twice; a column has one tier")
    return tiers or None


def _parties(given: Sequence[str]) -> dict[str, str]:
    held: dict[str, str] = {}
    for text in given:
        name, found, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not found or not name or not value:
            raise InputError(f"--party {text}: write it as NAME=COLUMN,COLUMN or NAME=FILE.csv")
        if name in held:
            raise InputError(f"--party {text}: {name!r} is named twice; give all its columns at once")
        held[name] = value
    return held


def _settings(given: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the method, and those of the data."""
    from veracausa.written_settings import parse_setting

    own: dict[str, Any] = {}
    source: dict[str, Any] = {}
    for text in given:
        (scope, *path), value = parse_setting(text, "NAME=VALUE")
        name = ".".join(path)
        if path and scope not in ("data", *GROUPS):
            raise InputError(f"--set {text}: a setting of the data is data.NAME, one of the method has no dot")
        if path and scope in GROUPS:
            own.setdefault(scope, {})[name] = value
        else:
            (source if path else own)[name or scope] = value
    return own, source


def print_discovery(run: DiscoveryRun) -> None:
    """The graph as a list, the key numbers, what to know, and where the page is."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.discovery_page import discovery_headline, discovery_numbers, empty_graph_sentence
    from veracausa.report.discovery_sections import kept_because

    summary, edges = run.summary, run.edges
    console.say(discovery_headline(summary))
    if because := kept_because(summary):
        console.say(because)
    if not edges:
        console.say(empty_graph_sentence(summary))
    if edges:
        console.out.print(_edge_table(edges[:SHOWN], summary))
        if len(edges) > SHOWN:
            console.out.print(f"… and {len(edges) - SHOWN} weaker ones in {run.path / 'edges.csv'}", markup=False)
        if summary.get("undirected"):
            console.out.print("—: the direction is not told; both fit the columns about equally well", markup=False)
    numbers = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in discovery_numbers(summary)[1:]:
        numbers.add_row(name, escape(value))
    console.out.print(numbers)
    for warning in summary.get("warnings", ()):
        console.say(f"WARNING: {warning}")
    if len(summary.get("parties") or ()) > 1 and summary.get("engine") != "federated":
        said = "note: all columns were in one place: parties are only named, and nothing was kept from another"
        console.say(said)
    for note in together(summary.get("notes", ())):
        first, more, _ = note.partition(". ")
        console.say(f"note: {first}{' … (the page has the rest)' if more else ''}")
    console.out.print(f"\nReport: {run.path / 'report.html'}", markup=False, soft_wrap=True)


def together(notes: Sequence[str]) -> list[str]:
    """Notes in which several parties or columns say the same become one: `hospital, lab: …`."""
    said: dict[tuple[bool, str], list[str]] = {}
    for note in notes:
        who, colon, what = note.partition(": ")
        of_one = bool(colon) and " " not in who
        said.setdefault((of_one, what if of_one else note), []).append(who)
    return [f"{', '.join(who)}: {what}" if of_one else what for (of_one, what), who in said.items()]


def _edge_table(edges: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Table:
    """The edges, one a row: with effects where the method tells them, else with its own measure of strength."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.report.discovery_sections import signed

    told = any(row.get("share") is not None for row in edges)
    lines = any(row.get("directed") == "no" for row in edges)
    many = len({row["cause_party"] for row in edges} | {row["effect_party"] for row in edges}) > 1
    sure = bool(summary.get("bootstrap"))
    table = Table(box=None, pad_edge=False)
    table.add_column("cause")
    if told or lines:
        table.add_column("")
    table.add_column("effect")
    for name in ("deviations", "of variance") if told else ("strength",):
        table.add_column(name, justify="right")
    if told:
        table.add_column("shape")
    if sure:
        table.add_column("confidence", justify="right")
    if many:
        table.add_column("whose")
    for row in edges:
        way = "—" if row.get("directed") == "no" else "→"
        cells = [row["cause"], *([way] if told or lines else []), row["effect"]]
        if told:
            slope, share = row.get("slope"), row.get("share")
            cells += ["" if slope is None else signed(slope), "" if share is None else f"{100 * share:.0f} %"]
            cells.append(row.get("shape") or "")
        else:
            cells.append(f"{row['strength']:.2f}")
        if sure:
            cells.append("" if row["confidence"] is None else f"{100 * row['confidence']:.0f} %")
        inside = row["cause_party"] == row["effect_party"]
        whose = row["cause_party"] if inside else f"{row['cause_party']} {way} {row['effect_party']}"
        cells += [whose] if many else []
        table.add_row(*map(escape, cells))
    return table


SHOWN = 25
"""Edges that a terminal shows; the page and the file have all."""
