"""How many threads a module is run with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from veracausa.config import Runtime
from veracausa.models.runner import SMALL_ROW, threads_for


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("shapes", "asked", "threads"),
    [
        ([(6,), (1, 8, 4)], None, 1),
        ([(6,), (3, SMALL_ROW)], None, 3),
        ([(6,)], 2, 2),
        ([(3, SMALL_ROW)], 2, 2),
    ],
)
def test_small_rows_take_one_thread_unless_the_job_says_how_many(
    shapes: list[tuple[int, ...]], asked: int | None, threads: int
) -> None:
    with threads_for(Runtime(cpu_threads=asked), *shapes):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3
