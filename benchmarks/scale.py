"""What one block of rows costs a party of blind training, by each part of the work, in seconds of one core.

All rows are made of blocks, and no part of the work looks at two of them, so a training costs this times the blocks
and the passes over them. Replies are made once a pair, whatever the number of blocks. Until then the answering party
holds their sums in memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat, takewhile
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import polars as pl
import torch

from benchmarks.rows import Row
from veracausa.arrays import Array
from veracausa.crypto.moments import MomentPlan
from veracausa.crypto.moments.encoding import encoded_blocks
from veracausa.crypto.moments.pairs import PlainAnswerer, PlainOwner, plain_products
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.data.blocks import open_rows
from veracausa.data.column_sums import fit_pieces
from veracausa.data.preprocessing import apply
from veracausa.data.table_files import read_table
from veracausa.features import feature_maps
from veracausa.features.base import FitContext, OwnRows, row_columns

OWNER, ANSWERER = "one", "other"


@dataclass(frozen=True)
class BlockCase:
    """A party's table: so many columns of numbers. `blocks` of it are made up, and the sums are planned for `total`."""

    columns: int = 10
    block_rows: int = 8192
    total: int = 10_000_000
    """Rows of the training whose block it is: ciphertexts are packed by how many rows share the replies."""
    blocks: int = 16

    @property
    def rows(self) -> int:
        return self.block_rows * self.blocks


def run(case: BlockCase, repeats: int = 3) -> list[Row]:
    """A row a part of the work; the middle of several rounds counts."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({f"c{n}": rng.normal(size=case.rows) for n in range(case.columns)})
    with tempfile.TemporaryDirectory() as folder:
        rows = _reading(case, frame, Path(folder), repeats)
    mapped, more = _mapping(case, frame, repeats)
    return rows + more + _summing(case, mapped, repeats)


def _reading(case: BlockCase, frame: pl.DataFrame, folder: Path, repeats: int) -> list[Row]:
    found = []
    for suffix, write in (("parquet", frame.write_parquet), ("csv", frame.write_csv)):
        path = folder / f"t.{suffix}"
        write(path)
        file = open_rows(path)

        def streamed(file: Any = file) -> None:
            for _ in file.pieces(file.columns):
                pass

        def whole(path: Path = path) -> None:
            read_table(path)

        ours, theirs = _timed(streamed, repeats) / case.blocks, _timed(whole, repeats) / case.blocks
        found.append(
            Row(
                f"read, {suffix}",
                ours,
                "the whole file at once",
                theirs,
                {"MB": path.stat().st_size / 1e6 / case.blocks},
            )
        )

        def fitted(file: Any = file) -> None:
            fit_pieces(file, lambda: ((range(f, f + p.height), p) for f, p in file.pieces(file.columns)), file.columns)

        found.append(Row(f"fit preprocessing, {suffix}", _timed(fitted, repeats) / case.blocks, "reading it", ours))
    return found


def _mapping(case: BlockCase, frame: pl.DataFrame, repeats: int) -> tuple[Array, list[Row]]:
    fitted = {
        "columns": [
            {"name": name, "kind": "numeric", "mean": 0.0, "std": 1.0, "missing": False} for name in frame.columns
        ]
    }
    rows = apply(fitted, frame)
    name = "splines"
    spline_map = feature_maps.get(name)(feature_maps.options(name)(name=name))
    context = FitContext(torch.Generator().manual_seed(0))
    columns = row_columns(fitted)
    fit = _timed(lambda: spline_map.fit(OwnRows(rows, columns), context), repeats) / case.blocks
    block = rows[: case.block_rows]
    seconds = _timed(lambda: spline_map.map(block), repeats)
    copied = _timed(lambda: block.to(torch.float64).numpy().copy(), repeats)
    mapped = np.asarray(spline_map.map(block))
    spread = mapped.std(axis=0)
    scaled: Array = np.clip((mapped - mapped.mean(axis=0)) / np.where(spread > 0, spread, 1), -15, 15)
    width = {"features": float(scaled.shape[1])}
    return scaled, [
        Row(f"fit {name}", fit, "mapping as many rows", seconds),
        Row(f"map by {name}", seconds, "copying the rows", copied, width),
    ]


def _summing(case: BlockCase, features: Array, repeats: int) -> list[Row]:
    width = features.shape[1]
    name = f"sums of {width} × {width}"
    widths = {OWNER: width, ANSWERER: width}

    def plan(encryption: Literal["bfv", "none"]) -> MomentPlan:
        return MomentPlan(
            (OWNER, ANSWERER), widths, case.total, OWNER, encryption, value_bits=7, block_rows=case.block_rows
        )

    def encoded() -> Iterator[Array]:
        return encoded_blocks(plan("none"), OWNER, lambda: repeat(features))

    block = next(encoded())
    packing = plan("none").packing(OWNER, ANSWERER)
    most = plan("none").most
    float_seconds = _timed(lambda: features.T @ features, repeats)
    encoding = _timed(lambda: next(encoded()), repeats)
    query = PlainOwner(packing).query(0, block)
    answerer = PlainAnswerer(packing, SecureDraws(), most)

    def answer() -> None:
        for task in answerer.tasks(0, query, block):
            answerer.add(plain_products(task))

    twin = _timed(answer, repeats)
    found = [
        Row("as integers", encoding, "the product in floats", float_seconds),
        Row(f"{name}, twin", twin, "the product in floats", float_seconds, {"MB": query.nbytes / 1e6}),
    ]
    return found + _encrypted(name, plan("bfv"), block, twin)


def _encrypted(name: str, plan: MomentPlan, block: Array, twin: float) -> list[Row]:
    try:
        from veracausa.crypto.backends.bfv.ciphertexts import DEGREE, SUMMED
        from veracausa.crypto.moments.bfv_pairs import BfvKeys, partial_sums
    except ImportError:
        return []
    packing = plan.packing(OWNER, ANSWERER)
    toss = Toss(os.urandom(32))
    owner, answerer = BfvKeys(toss, OWNER), BfvKeys(toss, ANSWERER)
    answerer.meet(OWNER, owner.public_key())
    owning, answering = owner.owner(ANSWERER, packing), answerer.answerer(OWNER, packing, SecureDraws())
    encrypting = multiplying = 0.0
    sent = 0
    for number, (_, first, last) in enumerate(takewhile(lambda packet: packet[0] == 0, packing.packets())):
        clock = time.process_time()
        query = owning.query(number, block[first:last])
        encrypting += time.process_time() - clock
        sent += query.nbytes
        clock = time.process_time()
        for task in answering.tasks(number, query, block[first:last]):
            answering.add(partial_sums(task))
        multiplying += time.process_time() - clock
    clock = time.process_time()
    replies = sum(reply.nbytes for reply in answering.replies())
    replying = time.process_time() - clock
    held = packing.replies * 2 * SUMMED * DEGREE * 8
    return [
        Row(f"{name}, encrypting", encrypting, "the twin's sums", twin, {"MB": sent / 1e6}),
        Row(f"{name}, multiplying", multiplying, "the twin's sums", twin, {"MB": 0.0}),
        Row(f"{name}, replies, once", replying, "the twin's sums", twin, {"MB": replies / 1e6, "MB held": held / 1e6}),
    ]


def _timed(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of this process, whose threads all count; the first round warms up."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return max(median(taken), 1e-9)
