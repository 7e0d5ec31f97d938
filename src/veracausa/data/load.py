"""From a job to the data of every party: the rows it trains on, and new rows to predict.

The preprocessing of new rows comes from training and is never fitted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from veracausa.data import preprocessing
from veracausa.data.array_files import class_names, is_array_file, picture_arrays, read_arrays
from veracausa.data.blocks import StreamedTable, open_rows
from veracausa.data.frames import is_array, is_rows, table_of
from veracausa.data.ids import TableFile, held_by_all
from veracausa.data.images import ImageOptions, Images, split_images, split_new_images
from veracausa.data.picture_files import as_pictures, class_folders, in_turn, pictures_below, read_pictures
from veracausa.data.sources import datasets
from veracausa.data.split_tables import Task, encode, split_tables
from veracausa.data.streamed import stream_new, stream_tables
from veracausa.data.table_files import as_declared
from veracausa.data.tables import Frames, TableFileOptions, TableOptions, Tables, open_tables, own_table
from veracausa.data.vertical import SPLITS, Part, PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    from veracausa.config import Job

Sources = Mapping[str, Any] | Any
"""A party's own file, frame or array each, or one for all."""


def load(job: Job, frames: Frames | None = None) -> VerticalDataset:
    """The job's data, split between its parties: the active party first, then the passive ones in the job's order.

    `frames` are rows given in Python, by the files that the job names for them.
    """
    whole: Images | Tables[Any]
    if frames is not None:
        assert isinstance(job.data, TableFileOptions)
        whole = open_tables(job.data, job, frames)
    else:
        whole = datasets.get(job.data.name)(job.data, job)
    if isinstance(whole, Images):
        data = split_images(whole, job)
    else:
        assert isinstance(job.data, TableOptions)
        if isinstance(job.data, TableFileOptions) and job.data.stream:
            data = stream_tables(whole, job.data, job)
        else:
            data = split_tables(whole, job.data, job)
    check(data)
    return data


def load_new(
    job: Job,
    sources: Sources,
    preprocessing: Mapping[str, Mapping[str, Any] | None],
    classes: Sequence[str],
) -> VerticalDataset:
    """New rows to predict, in `test`; `preprocessing` is each party's as saved in training, none for pictures."""
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


def new_tables(
    job: Job, sources: Sources, fitted: Mapping[str, Mapping[str, Any]], classes: Sequence[str]
) -> VerticalDataset:
    """The rows that every party holds, in the order of the active party's file, else of the first passive party's."""
    active, names = job.parties.active, (job.parties.active, *job.parties.passive)
    files = _open(job, sources, names, fitted)
    if isinstance(job.data, TableFileOptions) and job.data.stream:
        return stream_new(job, files, fitted, classes)
    leader = files.get(active) or next(iter(files.values()))
    everyone = torch.arange(leader.frame.height)
    found = {name: everyone if file is leader else file.find(leader.ids) for name, file in files.items()}
    everywhere = held_by_all(list(found.values()))
    if not everywhere.any():
        raise InputError(
            "no row is held by every party; check that the id columns name the same people in the same way"
        )
    ids = tuple(leader.ids[row] for row in everywhere.nonzero().flatten().tolist())
    rows = {name: own[everywhere] for name, own in found.items()}
    parties = {}
    for name in names:
        labels = new_labels(job, files[name], rows[name], classes) if name == active and name in files else None
        parties[name] = new_party(name, fitted.get(name), files.get(name), rows.get(name), ids, labels)
    dropped = len(everywhere) - len(ids)
    notes = (f"{dropped} of {len(everywhere)} rows dropped: not every party holds them",) if dropped else ()
    task: Task = "classification" if classes else "regression"
    return VerticalDataset(job.data.name, active, parties, task, tuple(classes), "features", notes)


def new_party(
    name: str,
    fitted: Mapping[str, Any] | None,
    file: TableFile | None,
    rows: Tensor | None,
    ids: tuple[str, ...],
    labels: Tensor | None,
) -> PartyData:
    """One party's new rows, which stand at `rows` of its own file; without preprocessing it holds no features."""
    features: Tensor | None = None
    groups: tuple[int, ...] | None = None
    if fitted is not None and file is not None and rows is not None:
        features = preprocessing.apply(fitted, file.take(rows), str(file.path), rows.tolist())
        groups = preprocessing.feature_groups(fitted)
    test = Part(len(ids), features, labels=labels, ids=ids, groups=groups)
    shape = () if features is None else tuple(features.shape[1:])
    return PartyData(name, shape, test.none(), test.none(), test, fitted)


def _open(job: Job, sources: Sources, names: Sequence[str], fitted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Each party's file, read or, where the job streams, opened."""
    options = job.data
    if not isinstance(options, TableOptions):
        raise InputError(f"data set {options.name!r} is no table, yet the run has preprocessing; use the run's own job")
    each: dict[str, Any] = dict(sources) if isinstance(sources, Mapping) else dict.fromkeys(names, sources)
    shown = {name: f"data[{name!r}]" if isinstance(sources, Mapping) else "data" for name in each}
    shown |= {name: str(source) for name, source in each.items() if not is_rows(source)}
    for name in each:
        if name not in names:
            raise InputError(f"{shown[name]}: no party is named {name!r}{did_you_mean(name, names)}")
    for name in fitted:
        if name not in each:
            raise InputError(f"party {name!r} holds features, but no file was given for it; give one as {name}=FILE")
    several = len({id(source) if is_rows(source) else str(Path(source)) for source in each.values()}) > 1
    opened: dict[tuple[str, str | None], TableFile | StreamedTable] = {}
    streams = isinstance(options, TableFileOptions) and options.stream
    files = {}
    for name in (name for name in names if name in each):
        own = own_table(job, name)
        place, key = Path(shown[name]), own.id or options.id
        if (source := (shown[name] if several else "", key)) not in opened:
            if several and key is None and not streams:
                raise InputError(f"party.{name}.data.id: is missing; rows of several files are matched by an id column")
            if is_rows(each[name]):
                if streams:
                    raise InputError(
                        f"{place}: this run streams its rows; save them as Parquet or CSV, and name the file"
                    )
                found: Any = as_declared(
                    table_of(each[name], str(place), key), options.writing(key, own)["categorical"]
                )
            else:
                found = open_rows(place, **options.writing(key, own)) if streams else options.read(place, key, own)
            known = key if several or (key is not None and key in found.columns) else None
            opened[source] = StreamedTable(found, known) if streams else TableFile(place, found, known)
        files[name] = opened[source]
    _check_arrays(each, files)
    return files


def _check_arrays(each: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    """Arrays are matched row by row: as many rows each."""
    sizes = {name: files[name].rows for name, source in each.items() if is_array(source)}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} {rows}" for name, rows in sizes.items())
        raise InputError(f"data: arrays are matched row by row, and their rows differ ({said}); give as many")


def new_labels(job: Job, file: TableFile, rows: Tensor, classes: Sequence[str]) -> Tensor | None:
    """The labels where the new rows have them."""
    assert isinstance(job.data, TableOptions)
    column = job.data.label
    if column not in file.frame.columns:
        return None
    series = file.frame[column]
    if series.null_count() == len(series):
        return None
    return encode(series, "classification" if classes else "regression", classes, str(file.path))[rows]


def new_images(job: Job, sources: Sources, classes: Sequence[str]) -> VerticalDataset:
    """The pictures of a folder, or of a .npy or .npz file; labels where class folders or an archive say them."""
    if isinstance(sources, Mapping):
        if len({id(source) if is_rows(source) else str(source) for source in sources.values()}) != 1:
            raise InputError("pictures are split here: give one folder or one .npy file for all parties")
        sources = next(iter(sources.values()))
    channels, side = job.data.picture() if isinstance(job.data, ImageOptions) else (3, None)
    if is_rows(sources):
        if not is_array(sources):
            raise InputError(
                f"data: a {type(sources).__name__} holds no pictures, which this run predicts; give an array"
            )
        pictures, labels = as_pictures(np.asarray(sources), "data", channels, side), None
        return split_new_images(pictures, labels, _numbered(pictures), tuple(classes), job)
    path = Path(sources)
    if path.is_dir():
        pictures, labels, ids = _folder(path, channels, side, classes)
    elif is_array_file(path) and path.is_file():
        pictures, labels = _arrays(path, channels, side, classes)
        ids = _numbered(pictures)
    else:
        raise InputError(f"{path}: is neither a folder of pictures nor a .npy or .npz file; correct the path")
    return split_new_images(pictures, labels, ids, tuple(classes), job)


def _folder(
    path: Path, channels: int, side: int | None, classes: Sequence[str]
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    paths: list[Path] = pictures_below(path)
    labels = None
    if not paths:
        raise InputError(f"{path}: holds no pictures; name a folder that does")
    folders = [entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    if folders and set(folders) <= set(classes) and all(picture.parent != path for picture in paths):
        paths, labels = in_turn(class_folders(path), classes)
    return read_pictures(paths, channels, side), labels, tuple(str(picture.relative_to(path)) for picture in paths)


def _arrays(path: Path, channels: int, side: int | None, classes: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """The pictures of a .npy file, or those of a .npz file with their labels where it has some: its test part first."""
    arrays = read_arrays(path)
    if len(arrays) == 1:
        return as_pictures(next(iter(arrays.values())), str(path), channels, side), None
    train, test = picture_arrays(path)
    array, told = test or train
    names = class_names(told, len(array), str(path))
    for name in names:
        if name not in classes:
            raise InputError(f"{path}: class {name!r} was not in the training{did_you_mean(name, classes)}")
    labels = torch.tensor([classes.index(name) for name in names])
    return as_pictures(array, str(path), channels, side), labels


def _numbered(pictures: Tensor) -> tuple[str, ...]:
    return tuple(str(row) for row in range(1, len(pictures) + 1))
