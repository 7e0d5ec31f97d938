"""`veracausa init`: a commented job to start from."""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.own_files import DATA_SUFFIXES, OwnFiles, own_files

IMAGE_DATA = """\
[data]                              # `veracausa list datasets` shows them all with their settings
name = "{name}"
{path}validation = 0.1                    # the share of the training rows held out for validation
# train = 1000                      # take at most so many training rows
# test = 500

[partition]                         # which party holds which pixels
kind = "strips"                     # strips | random
axis = "width"                      # width: side by side | height: one above the other
active_has_features = false         # true: the active party holds the first part itself
# parts = [4, 4]                    # strip widths in pixels; default: equal
"""

TABLE_DATA = """\
[data]                              # `veracausa list datasets` shows them all with their settings
name = "{name}"
{path}validation = 0.1                    # the share of the training rows held out for validation
{test}
[partition]                         # which party holds which columns
kind = "auto"                       # auto | columns | random
active_has_features = {has}          # the active party holds columns beside the labels
{shares}"""

IMAGE_MODEL = """\
[model]                             # one model, cut in two: bottoms at the parties, the top at the active party
name = "convnet"                    # `veracausa list models`
cut = 6                             # the last unit of the bottom model, counted from 1
"""

TABLE_MODEL = """\
[model]                             # one model, cut in two: bottoms at the parties, the top at the active party
name = "mlp"                        # `veracausa list models`
cut = 2                             # the last unit of the bottom model, counted from 1
# hidden = [64, 32]                 # widths of the layers; naming them also lets a party send 64 numbers a row
# payload = 16                      # numbers a row that a party sends at most; default: as many as it has columns
"""

HEAD = """\
# A job for veracausa. Train it with `veracausa train {file}`.
# Every setting can also be laid over from outside: `veracausa train {file} --set {example}`.

name = "{name}"
seed = 0                            # the same seed on the same machine gives the same run

{data}
[parties]
active = {active}# holds the labels and {leads}
passive = [{passive}]

[overlap]                           # when a party lacks some of the people
fraction = 1.0                      # 0.6: it holds only 60 % of the training rows
# parties = ["{last}"]           # who lacks them; default: the last passive party
{files}"""

SPLIT = """\
# missing = "gwd"                   # gwd | drop | zero_fill: what to do with rows that someone lacks

{model}
[training]
protocol = "split"                  # every training row's payload crosses in every epoch | blind: only sums over rows
epochs = {epochs}
batch_size = {batch_size}
evaluate_every = 1                  # test every so many epochs
class_weights = "none"              # none | balanced: weigh rare classes more
baselines = [{baselines}]               # active_only | joint | unsplit: what the federation is measured against

[training.optimizer]
name = "adam"                       # adam | sgd
lr = {rate}

[training.schedule]
name = "constant"                   # constant | cosine | step

[risk]                              # how much of a row the payload would give away, measured without any attack
every = 1                           # after every so many epochs, of small rows; 0: never, not even at the end
# exact = 16                        # rows measured after training; of pictures like CIFAR's a minute each on a CPU

[transcript]                        # what the active party receives, kept so that attacks can look at it later
record = false
{runtime}
[defense]                           # what every passive party does before a representation leaves it
name = "none"                       # none: it leaves as it is, and can leak | causshield | greyscale: only a control

# [party.{last}.defense]         # one party's own choice
# name = "none"
"""

BLIND = """\

[training]
protocol = "blind"                  # only sums over rows cross, no training row is opened | split: payloads cross
class_weights = "none"              # none | balanced: weigh rare classes more
baselines = [{baselines}]               # active_only | joint: what the federation is measured against

[blind]                             # what leaves a party, and how; docs/blind.md says what that is worth
labels = "none"                     # none: labels stay at home | private: randomised | shared: sent as they are
label_epsilon = 4.0                 # private: how much a told label may say; smaller says less
encryption = "bfv"                  # bfv: needs `pip install "veracausa[he]"` | none: in clear, only to try it
# epsilon = 4.0                     # differential privacy of the sums: noise; not set: exact sums
# delta = 1e-5
ridge = "gcv"                       # how strongly the head is held back; gcv: found from the sums | a number
step = 0.01                         # scores of a predicted row are blurred by this width
min_rows = 20                       # a feature or a class that fewer rows have is merged or refused
# allow_small_n = true              # also where rows are so few that sums could tell rows

[features]                          # what each party makes of its own rows, at home; `veracausa list features`
name = "auto"                       # {maps}

# [party.{last}.features]        # one party's own choice
# name = "{other}"

{network}{runtime}"""

NETWORK = """\
[model]                             # the network of a feature map that has one, such as simclr
name = "convnet"                    # `veracausa list models`
"""

RUNTIME = """
[checkpoints]                       # where a run that was stopped goes on: `veracausa train {file} --resume --out RUN`
keep = 3                            # the last so many
# every_steps = 100                 # default: once an epoch

[runtime]
link = "threads"                    # threads: fastest | processes: one process a party
device = "auto"                     # auto | cpu | cuda
precision = "fp32"                  # fp32 | bf16
timeout = 120.0                     # seconds without a word after which a party counts as lost
"""

SHARES = """\
# [partition.columns]               # or name them, party by party
# active = ["age", "sex"]
# passive_1 = ["income", "debts"]
# passive_2 = ["visits"]
"""
FILES = """
# [party.active.data]               # or a file a party, matched by `id`: leave [data] path and [partition] out then
# path = "bank.csv"
# [party.passive_1.data]
# path = "shop.csv"
"""
"""What is said of files of one's own; `veracausa init job.toml bank=bank.csv shop=shop.csv` writes it out."""
SMALL = ("clothing", "digits")
"""Bundled pictures: so few that more and smaller steps pay, and take seconds."""
WHY = {
    "blind": "blind training, because no training row is opened and its head adds up what each party knows; "
    "take --protocol split where only products of two parties' columns tell the label",
    "split": "split training, because its top model can multiply one party's columns by another's; "
    "it sends a payload of every training row, which partners can read",
}
"""What `auto` says of its choice."""


class Protocol(StrEnum):
    """What `--protocol` may say."""

    AUTO = "auto"
    BLIND = "blind"
    SPLIT = "split"


def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The job file to write.")] = Path("job.toml"),
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PARTY=]FILE…",
            help="Your own data: a table or a folder of pictures for all parties, or a table a party.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="A known data set, or `csv`, `parquet`, `images` to fill in; default: digits."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Of tables given: the column to predict.")] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Of tables given: the column that says whose row it is.")
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(
            "--protocol",
            help="blind: only sums over rows cross. split: payloads of every row cross. auto: asks which. "
            "Without it: blind.",
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Also write the JSON schema of jobs beside it, and name it in the first line."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented job to start from."""
    from veracausa.cli import console
    from veracausa.errors import InputError

    if "=" in path.name or path.suffix.lower() in DATA_SUFFIXES:
        raise InputError(f"{path}: name the job file to write first: veracausa init job.toml {path}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the job file to write, such as {path / 'job.toml'}")
    if path.exists() and not force:
        raise InputError(f"{path}: is already there; --force writes over it")
    if files and data is not None:
        raise InputError(f"--data {data}: the data are the files given; leave it out")
    if not files and (label is not None or id is not None):
        raise InputError("--label, --id: are of files given, as in: veracausa init job.toml table.csv --label good")
    own = own_files(files, label, id) if files else None
    data = own.data if own is not None else data or "digits"
    text = job_text(
        data, path, "split" if protocol is Protocol.SPLIT else "blind", own
    )  # a wrong name comes before a question
    if protocol in (None, Protocol.AUTO):
        chosen = "blind" if protocol is None else _chosen()
        text = job_text(data, path, chosen, own)
        console.say(f"It takes {WHY[chosen]}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if schema:
            text = f"{_with_schema(path.parent)}\n{text}"
        path.write_text(text, encoding="utf-8")
    except PermissionError:
        raise InputError(f"{path}: may not be written; name another place") from None
    where = str(path) if " " not in str(path) else f'"{path}"'
    if own is not None and own.said:
        console.say(own.said)
    console.out.print(f"Wrote {path}. Next: veracausa train {where}", markup=False, soft_wrap=True)
    if "your-file" in text or "your-pictures" in text:
        console.out.print("Put the path of your own data into its [data] section first.", markup=False)


def _with_schema(folder: Path) -> str:
    """The line that names the schema, which is written into the job's folder: so it works without a network."""
    from veracausa.cli.job_schema import FILE
    from veracausa.cli.schema import LINE, write_schema

    write_schema(folder / FILE)
    return f"{LINE} ./{FILE}"


def _chosen() -> str:
    """What `auto` comes to: asked on a terminal; elsewhere blind, which is safe for rows whatever the data are."""
    if not _terminal():
        return "blind"
    question = "Does the label hang on products of two parties' columns, which neither of them shows alone?"
    return "split" if typer.confirm(question, default=False, err=True) else "blind"


def _terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _run_name(path: Path) -> str:
    return re.sub(r"[^\w-]+", "-", path.stem) or "job"


def job_text(
    dataset: str, path: Path = Path("job.toml"), protocol: str = "split", files: OwnFiles | None = None
) -> str:
    """A job for this data set and protocol, or for files of one's own, as commented TOML that loads."""
    import tomllib

    from veracausa.config import load_job
    from veracausa.data.images import ImageOptions
    from veracausa.data.sources import datasets

    options = datasets.options(dataset)
    of_pictures = issubclass(options, ImageOptions)
    own = ""
    if "path" in options.model_fields:
        example = "your-pictures" if of_pictures else f"your-file.{dataset}"
        what = "a folder with one folder a class" if of_pictures else "one file for all parties"
        if files is None:
            own += f'path = "{example}"'.ljust(36) + f"# {what}\n"
        elif files.path is not None:
            own += f"path = {json.dumps(files.path, ensure_ascii=False)}".ljust(36) + f"# {what}\n"
    if "grey" in options.model_fields:
        own += "# grey = true".ljust(36) + "# for grey pictures: one channel in place of three equal ones\n"
    if "label" in options.model_fields and options.model_fields["label"].is_required():
        named = json.dumps(files.label if files is not None else "label", ensure_ascii=False)
        own += f"label = {named}".ljust(36) + "# the column to predict, the active party's\n"
    if "label" in options.model_fields:
        known = files is not None and files.id is not None
        named = json.dumps(files.id if files is not None and known else "id", ensure_ascii=False)
        own += (
            f"{'' if known else '# '}id = {named}".ljust(36)
            + "# the column that names a row; needed where parties have files of their own\n"
        )
    names = [*files.files] if files is not None and files.files else ["active", "passive_1", "passive_2"]
    has = "false" if files is not None and not files.active_has_features else "true"
    shares = SHARES if files is None or not files.files else ""
    test_path, test = "test_path" in options.model_fields and files is None, ""
    if "test_path" in options.model_fields:
        test += "# holdout = 0.2".ljust(36) + "# the share held out for the test, where there is no test_path\n"
        test += f'# test_path = "test.{dataset}"\n'
        test += '# categorical = ["postcode"]'.ljust(36) + "# columns of words, also where the words are numbers\n"
    if "decimal" in options.model_fields:
        between = dict(files.separators).get("") if files is not None else None
        test += f"{'# ' * (between is None)}separator = {json.dumps(between or ';')}\n"
        test += '# decimal = ","'.ljust(36) + "# 20,5 in place of 20.5\n"
        test += '# encoding = "cp1252"'.ljust(36) + "# of files that are not UTF-8\n"
    head = HEAD.format(
        file=path.name,
        name=dataset if files is None else _run_name(path),
        example="training.epochs=3" if protocol == "split" else "blind.labels=private",
        leads="the top model" if protocol == "split" else "computes the head",
        data=(IMAGE_DATA if of_pictures else TABLE_DATA).format(
            name=dataset, path=own, test=test, has=has, shares=shares
        ),
        active=json.dumps(names[0], ensure_ascii=False).ljust(27),
        passive=", ".join(json.dumps(name, ensure_ascii=False) for name in names[1:]),
        last=names[-1],
        files=f"\n{files.sections()}\n" if files is not None and files.files else FILES if test_path else "",
    )
    epochs, batch_size, rate = (30, 32, 0.004) if dataset in SMALL else (10, 64, 0.002)
    text = head + (SPLIT if protocol == "split" else BLIND).format(
        epochs=epochs,
        batch_size=batch_size,
        rate=rate,
        model=IMAGE_MODEL if of_pictures else TABLE_MODEL,
        baselines='"joint"' if of_pictures else '"active_only"',
        last=names[-1],
        runtime=RUNTIME.format(file=path.name),
        network=NETWORK if of_pictures else "",
        maps="auto: simclr on a GPU, patches on a CPU" if of_pictures else "auto: splines; scores of trees with labels",
        other="patches" if of_pictures else "splines",
    )
    load_job(tomllib.loads(text))
    return text
