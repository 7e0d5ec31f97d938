from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veracausa.data.picture_files import read_idx
from veracausa.errors import InputError


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), limit=st.one_of(st.none(), st.integers(1, 7)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_what_was_written(tmp_path, write_idx, shape, limit):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    write_idx(tmp_path / "a.gz", array)
    values, total = read_idx(tmp_path / "a.gz", len(shape), limit)
    assert total == shape[0]
    assert np.array_equal(values.numpy(), array[:limit])


@pytest.fixture
def intact(tmp_path, write_idx):
    path = tmp_path / "a.gz"
    write_idx(path, np.random.default_rng(0).integers(0, 256, (50, 28, 28)))
    return path


def test_a_cut_gzip_is_refused_with_its_place(intact):
    whole = intact.read_bytes()
    intact.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        InputError, match=r"a\.gz: the gzip data is broken at record \d+ of 50, byte \d+.*fetched again"
    ):
        read_idx(intact, 3)


def test_too_few_or_too_many_records_are_refused(intact):
    plain = gzip.decompress(intact.read_bytes())
    intact.write_bytes(gzip.compress(plain[:-1]))
    with pytest.raises(InputError, match="ends inside record 50 of 50"):
        read_idx(intact, 3)
    intact.write_bytes(gzip.compress(plain + b"x"))
    with pytest.raises(InputError, match="goes on after its 50 records"):
        read_idx(intact, 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip at all",
        gzip.compress(b""),
        gzip.compress(b"\0\0\x09\x03" + bytes(12)),
        gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12),
    ],
    ids=["empty", "not gzip", "nothing inside", "another type", "sizes beyond the file"],
)
def test_no_idx_file_is_refused(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz: .*(fetched again|intact)"):
        read_idx(tmp_path / "a.gz", 3)


def test_flipped_bytes_are_refused(intact):
    content = bytearray(intact.read_bytes())
    content[len(content) // 2] ^= 0xFF
    intact.write_bytes(bytes(content))
    with pytest.raises(InputError):
        read_idx(intact, 3)
