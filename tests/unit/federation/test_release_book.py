"""A party's book knows which of its rows were summed up before, and by which release."""

from __future__ import annotations

from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.federation.release_book import ReleaseBook
from veracausa.training.blind.book import enter_release

PEOPLE = [f"p{n}".encode() for n in range(50)]


def test_a_release_counts_for_later_ones_with_a_row_in_common(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path / "releases")
    assert book.earlier(PEOPLE) == {}
    assert not (tmp_path / "releases").exists()  # looking writes nothing
    book.enter("aa", 0.5, PEOPLE[:30])
    book.enter("bb", -1.0, PEOPLE[40:])
    again = ReleaseBook(tmp_path / "releases")
    assert again.earlier(PEOPLE[29:31]) == {"aa": 0.5}
    assert again.earlier(PEOPLE[30:40]) == {}
    assert again.earlier(PEOPLE) == {"aa": 0.5, "bb": -1.0}


def test_entered_twice_it_is_one_release(tmp_path: Path) -> None:
    ReleaseBook(tmp_path).enter("aa", 0.5, PEOPLE)
    ReleaseBook(tmp_path).enter("aa", 9.0, PEOPLE)
    assert ReleaseBook(tmp_path).earlier(PEOPLE) == {"aa": 0.5}


def test_the_book_shows_no_id(tmp_path: Path) -> None:
    ReleaseBook(tmp_path).enter("aa", 0.5, [b"a very long and readable id"])
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"readable" not in content
    other = ReleaseBook(tmp_path / "other")
    other.enter("aa", 0.5, [b"a very long and readable id"])
    # Another key: what one book says of an id can not be looked for in another.
    assert (tmp_path / "other" / "rows-aa").read_bytes() != (tmp_path / "rows-aa").read_bytes()


def test_a_release_of_blind_training_counts_for_all_rows(tmp_path: Path) -> None:
    enter_release(tmp_path, "cc", 0.25)
    assert ReleaseBook(tmp_path).earlier([b"anybody"]) == {"cc": 0.25}


def test_damage_and_odd_names_are_refused(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path)
    book.enter("aa", 0.5, PEOPLE)
    (tmp_path / "rows-aa").write_bytes(b"short")
    with pytest.raises(InputError, match="is damaged"):
        ReleaseBook(tmp_path).earlier(PEOPLE)
    with pytest.raises(InputError, match="no name of a release"):
        book.enter("../aa", 0.5, PEOPLE)
