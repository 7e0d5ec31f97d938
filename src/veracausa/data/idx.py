"""The IDX format of MNIST and its kin: a header with the shape, then unsigned bytes; mostly gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import Tensor

from veracausa.errors import InputError

# No picture data set comes near this; a larger side is a broken header, not a reason to allocate.
_MAX_SIDE = 1 << 14


def read_idx(path: Path, dimensions: int, limit: int | None = None) -> tuple[Tensor, int]:
    """The first `limit` records as uint8, and how many records the file says it holds."""
    mend = "delete it so that it is fetched again, or replace it by an intact copy"
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _read(cast(IO[bytes], stream), path, dimensions, limit, mend)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip data is broken ({error}); {mend}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {mend}") from None


def _read(stream: IO[bytes], path: Path, dimensions: int, limit: int | None, mend: str) -> tuple[Tensor, int]:
    header = stream.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions:
        raise InputError(f"{path}: ends inside its header, at byte {len(header)}; {mend}")
    if header[:4] != bytes([0, 0, 8, dimensions]):
        raise InputError(f"{path}: byte 0 does not start an IDX file of {dimensions}-dimensional bytes; {mend}")
    count, *sides = struct.unpack(f">{dimensions}I", header[4:])
    if not count or any(not 0 < side <= _MAX_SIDE for side in sides):
        raise InputError(f"{path}: its header (byte 4) says {count} records of shape {sides}; {mend}")
    wanted = count if limit is None else min(limit, count)
    size = math.prod(sides)
    body = bytearray()
    try:
        while len(body) < wanted * size and (block := stream.read(min(1 << 22, wanted * size - len(body)))):
            body += block
        whole = len(body) == wanted * size
        # Reading on to the end also checks gzip's own checksum.
        surplus = stream.read(1) if whole and wanted == count else b""
    except (EOFError, zlib.error) as error:
        place = f"record {len(body) // size + 1} of {count}, byte {len(header) + len(body)} unpacked"
        raise InputError(f"{path}: the gzip data is broken at {place} ({error}); {mend}") from None
    if not whole:
        place = f"record {len(body) // size + 1} of {count} (byte {len(header) + len(body)})"
        raise InputError(f"{path}: ends inside {place}; {mend}")
    if surplus:
        raise InputError(f"{path}: goes on after its {count} records (byte {len(header) + len(body)}); {mend}")
    values = np.frombuffer(body, np.uint8).reshape(wanted, *sides)
    return torch.from_numpy(values), count
