"""From a job to the data of every party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.data.images import Images, split_images
from veracausa.data.sources import datasets
from veracausa.data.vertical import SPLITS, VerticalDataset

if TYPE_CHECKING:
    from veracausa.config import Job


def load(job: Job) -> VerticalDataset:
    """The job's data, split between its parties: the active party first, then the passive ones in the job's order."""
    whole = datasets.get(job.data.name)(job.data, job)
    if isinstance(whole, Images):
        data = split_images(whole, job)
    else:
        from veracausa.data.split_tables import split_tables
        from veracausa.data.tables import TableOptions

        assert isinstance(job.data, TableOptions)
        data = split_tables(whole, job.data, job)
    check(data)
    return data


def load_new(
    job: Job,
    sources: Mapping[str, Path] | Path,
    preprocessing: Mapping[str, Mapping[str, Any] | None],
    classes: Sequence[str],
) -> VerticalDataset:
    """New rows to predict, in `test`; `preprocessing` is each party's as saved in training, none for pictures."""
    from veracausa.data.new_rows import new_images, new_tables

    fitted = {name: own for name, own in preprocessing.items() if own}
    data = new_tables(job, sources, fitted, classes) if fitted else new_images(job, sources, classes)
    check(data)
    return data


def check(data: VerticalDataset) -> None:
    """Refuse a data set that breaks what the rest of the program relies on; a plug-in's source may be wrong."""
    for split in SPLITS:
        lengths = {name: len(party.part(split)) for name, party in data.parties.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"{data.name}: the parties' {split} parts differ in length: {lengths}")
        for name, party in data.parties.items():
            part = party.part(split)
            if name != data.active and part.labels is not None:
                raise ValueError(f"{data.name}: labels at passive party {name!r}")
            if part.labels is not None and len(part.labels) != len(part):
                raise ValueError(f"{data.name}: {len(part.labels)} labels for {len(part)} {split} rows")
            held = part.present_count()
            if part.features is not None and len(part.features) != held:
                raise ValueError(f"{data.name}: party {name!r} has {len(part.features)} rows, its index says {held}")
