"""The index of a paper: nothing of it is left out, and the page says what the results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.experiments.experiment import known_experiments
from veracausa.experiments.index import PaperContents, PaperIndex, PaperItem, papers, read_register, write_indexes

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("paper", ["causshield", "vfedcd"])
def test_the_page_that_is_there_is_not_stale(paper: str):
    written = (RESULTS / paper / "index.md").read_text(encoding="utf-8")
    assert written == PaperIndex.read(paper, RESULTS).markdown, "write it again: veracausa reproduce --index"


@pytest.mark.parametrize("paper", ["causshield", "vfedcd"])
def test_every_experiment_of_a_paper_stands_in_its_index_and_every_gap_has_a_reason(paper: str):
    index = PaperIndex.read(paper, RESULTS)
    named = [f"{paper}/{name}" for item in index.register.items for name in item.experiments]
    assert sorted(named) == sorted(name for name in known_experiments() if name.startswith(f"{paper}/"))
    assert index.unexplained == []
    for name in index.register.dates:
        assert (RESULTS / paper / name / "table.csv").is_file(), name


def test_all_tables_and_figures_are_listed():
    vfedcd, causshield = ({item.item for item in read_register(paper).items} for paper in ("vfedcd", "causshield"))
    assert vfedcd == {*(f"Table {number}" for number in range(1, 8)), *(f"Figure {number}" for number in range(1, 7))}
    figures = {f"Figure {number}" for number in range(5, 15)}
    tables = {"Table I", "Table II", "Table III"}
    ours = {"Our profiles", "Our MNIST", "Our ablation", "Our attackers", "Our originals", "Our own half"}
    assert causshield == {*tables, "Figure 1a", "Figure 1b", "Figures 2 to 4", *figures, *ours}
    assert papers() == ["causshield", "vfedcd"]


def toy(folder: Path, table: str, missing: str = "") -> PaperIndex:
    """The index of a paper with one figure, whose results are this table."""
    place = folder / "vfedcd/fig4/small"
    place.mkdir(parents=True)
    (place / "table.csv").write_text(table)
    items = (PaperItem(item="Figure 4", experiments=("fig4",), missing=missing),)
    index = PaperIndex("vfedcd", folder, PaperContents(title="A toy", items=items, dates={"fig4/small": "2026-01-02"}))
    index.load()
    return index


def test_what_has_fewer_fits_than_asked_is_counted_and_named(tmp_path: Path):
    index = toy(tmp_path, "panel,row,at,column,mean,fits\ngamma,paper_4,0.004,shd,3,2\ngamma,paper_4,0.004,f1,.5,2\n")
    (run,) = index.runs["fig4"]
    assert (run.done, run.unit, run.date, run.machines) == (2, "fits", "2026-01-02", "not recorded")
    assert run.asked > 100
    assert "VFedCD, paper repaired (2 of 5, 0 of 5)" in run.lacking[0]
    assert index.state(index.register.items[0]) == "in part"
    assert index.unexplained == ["Figure 4"]
    assert f"| 2 of {run.asked} fits | 2026-01-02 |" in index.markdown


def test_more_fits_than_asked_do_not_make_up_for_others(tmp_path: Path):
    index = toy(tmp_path, "panel,row,at,column,mean,fits\ngamma,paper_4,0.004,shd,3,900\n", "no time")
    assert index.runs["fig4"][0].done == 5
    assert "- **Figure 4**: no time" in index.markdown


def test_the_day_and_the_machine_come_from_the_results(tmp_path: Path):
    index = toy(tmp_path, "panel,row,at,column,mean,fits\n")
    place = tmp_path / "vfedcd/fig4/small"
    (place / "environment.json").write_text('[{"cpu": "abacus", "cores": 2, "date": "2026-03-04"}, {"cpu": "abacus"}]')
    index.load()
    run = index.runs["fig4"][0]
    assert run.date == "2026-01-02 to 2026-03-04"
    assert run.machines == "2 cores, abacus; ? cores, abacus"


def test_what_nobody_ran_is_said_to_be_not_run(tmp_path: Path):
    index = PaperIndex.read("causshield", tmp_path)
    states = {item.item: index.state(item) for item in index.register.items}
    assert states.pop("Table I") == "whole", "it is no measurement, and its page is always written"
    assert set(states.values()) == {"not run", "nothing to measure"}


def test_the_pages_of_all_papers_are_written(tmp_path: Path):
    pages = ("causshield/index.md", "causshield/table1.md", "vfedcd/index.md")
    assert write_indexes(tmp_path) == [tmp_path / page for page in pages]
    assert "| Table I |" in (tmp_path / "causshield/index.md").read_text(encoding="utf-8")


def test_a_paper_that_is_not_there_is_one_sentence():
    with pytest.raises(InputError, match="no paper is named 'moon'"):
        read_register("moon")
