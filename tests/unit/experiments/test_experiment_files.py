"""Every experiment at every scale must be something that can be run, and say what the paper prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Names

from veracausa.errors import InputError
from veracausa.experiments.cell import CellStore
from veracausa.experiments.experiment import SCALES, deep_merge, known_experiments, load_experiment, resolve
from veracausa.experiments.training_cell import TRAINING
from veracausa.experiments.training_experiment import TrainingReproduction, training_places

FOLDER = Path(__file__).parents[3] / "experiments" / "causshield"
NAMES = [
    *(f"causshield/{name}" for name in ("fig1a", "fig1b", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11")),
    *(f"causshield/{name}" for name in ("fig12", "fig13", "fig14", "table2", "table3")),
    *(f"causshield/{name}" for name in ("ablation", "attackers", "originals", "own_half", "profiles")),
    *(f"causshield/{name}" for name in ("mnist_whole", "printed_optimiser", "urvfl_control")),
]


def test_all_are_found_and_the_jobs_beside_them_are_not():
    found = [name for name in known_experiments() if name.startswith("causshield/")]
    assert sorted(found) == sorted(NAMES)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*NAMES, "risk/invre", "risk/invre_digits"])
def test_an_experiment_becomes_valid_jobs_and_attacks(name: str, scale: str):
    experiment = load_experiment(name, scale)
    grid = list(training_places(experiment, experiment.show))
    assert grid or experiment.bench is not None
    for point in grid:
        assert {cell.job.defense.name for cell in point.cells.values()} == {point.cells[TRAINING].job.defense.name}
    for panel in experiment.show:
        assert any(point.panel == panel and point.row == "none" for point in grid)


@pytest.mark.parametrize(
    ("name", "data", "seeds"),
    [("causshield/profiles", {"mnist", "cifar10"}, {0, 1, 2}), ("causshield/fig11", {"mnist"}, {0})],
)
def test_scale_cpu_has_a_thousand_rows_few_seeds_and_no_second_cut(
    name: str, data: set[str], seeds: set[int], tmp_path: Path
):
    experiment = load_experiment(name, "cpu")
    assert "CPU" in experiment.scale_text
    places = list(training_places(experiment, experiment.show))
    assert {place.seed for place in places} == seeds
    jobs = [cell.job for place in places for cell in place.cells.values()]
    assert {job.data.name for job in jobs} == data
    assert all((job.data.train, job.runtime.device) == (1000, "cpu") for job in jobs)
    assert TrainingReproduction(experiment, tmp_path, places).further_places(CellStore(tmp_path)) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "causshield/fig14"])
def test_scale_cpu_is_small_everywhere_and_what_is_not_the_papers_is_marked(name: str, tmp_path: Path):
    experiment = load_experiment(name, "cpu")
    places = list(training_places(experiment, experiment.show))
    for cell in (cell for place in places for cell in place.cells.values()):
        job = cell.job
        rows = 60_000 if name == "causshield/mnist_whole" else 1000  # all of MNIST, for few epochs
        assert (job.data.train, job.model.name, job.runtime.device) == (rows, "convnet", "cpu")
    for panel in experiment.show:
        assert panel.startswith("mnist") or experiment.substituted(panel)
        assert all(experiment.published_at(panel, "none", column) is None for column in experiment.columns)
    assert TrainingReproduction(experiment, tmp_path, places).further_places(CellStore(tmp_path)) == []


def test_smoke_needs_no_file_and_no_gpu():
    for name in [*NAMES, "risk/invre", "risk/invre_digits"]:
        experiment = load_experiment(name, "smoke")
        for point in training_places(experiment, experiment.show):
            for cell in point.cells.values():
                assert (cell.job.data.name, cell.job.runtime.device) == ("digits", "cpu")


def test_small_cifar10_has_twenty_thousand_pictures_and_ten_epochs():
    for name in ("causshield/table2", "causshield/fig1a", "causshield/fig10", "causshield/fig13"):
        experiment = load_experiment(name, "small")
        for point in training_places(experiment, ["cifar10"]):
            job = point.cells[TRAINING].job
            assert (job.data.name, job.data.train, job.training.epochs) == ("cifar10", 20_000, 10)


def test_figures_share_cells():
    def cells(name: str) -> set[str]:
        experiment = load_experiment(name, "small")
        return {cell.key for point in training_places(experiment, ["cifar10"]) for cell in point.cells.values()}

    assert cells("causshield/table2") <= cells("causshield/fig1a")
    assert cells("causshield/fig8") <= cells("causshield/table2")
    assert len(cells("causshield/fig10") & cells("causshield/fig1a")) >= 2 * 8


def test_the_paper_is_left_out_where_the_data_are_not_its_own():
    table = load_experiment("causshield/table2", "paper")
    assert table.published_at("cifar10", "causshield", "urvfl.mse") == (0.069, 0.012)
    assert table.published_at("cifar10", "none", "accuracy") == (0.718, None)
    assert table.published_at("imagenet", "causshield", "urvfl.mse") is None
    letters = load_experiment("causshield/table3", "small")
    assert letters.published_at("emnist", "none", "accuracy") is None
    assert load_experiment("causshield/table2", "smoke").published_at("cifar10", "none", "accuracy") is None


def test_what_is_reconstructed_from_formulas_is_labelled_so():
    experiment = load_experiment("causshield/table2", "paper")
    for row in experiment.defenses.values():
        assert row.defense["name"].startswith("invl_") == ("reconstructed" in row.label)


def test_a_table_of_another_name_replaces_the_whole_table():
    below = {"data": {"name": "cifar10", "train": 5}, "training": {"epochs": 2, "batch_size": 8}}
    above = {"data": {"name": "digits"}, "training": {"epochs": 1}}
    assert deep_merge(below, above) == {"data": {"name": "digits"}, "training": {"epochs": 1, "batch_size": 8}}
    assert below["data"] == {"name": "cifar10", "train": 5}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": ["urvfll.mse"]}, "no attack is named 'urvfll'; did you mean 'urvfl'?"),
        ({"columns": ["accurracy"]}, "did you mean 'accuracy'"),
        ({"rows": ["nobody"]}, "no defense is named 'nobody'"),
        ({"show": ["moon"]}, "no panel is named 'moon'"),
        ({"published": {"digits": {"nun": {}}}}, "no defense is named 'nun'"),
        ({"colums": []}, "colums"),
    ],
)
def test_a_typo_is_one_sentence(change: dict, said: str):
    tree = {
        "item": "Table 0",
        "title": "a toy",
        "show": ["digits"],
        "panels": {"digits": {"label": "digits"}},
        "defenses": {"none": {"label": "no defense", "defense": {"name": "none"}}},
        "attacks": {"urvfl": {}},
        "scales": {"smoke": {}},
    }
    resolve(tree, "toy", "smoke")
    with pytest.raises(InputError, match=said) as caught:
        resolve({**tree, **change}, "toy", "smoke")
    assert "\n" not in str(caught.value)


def test_a_file_is_stronger_than_the_scales_of_the_one_it_extends(tmp_path: Path):
    (tmp_path / "base.toml").write_text('item = "A"\ntitle = "base"\nseeds = 9\n[scales.smoke]\nseeds = 1\n')
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "base.toml"\ntitle = "mine"\n')
    assert (load_experiment(str(mine), "smoke").seeds, load_experiment(str(mine), "smoke").title) == (1, "mine")
    mine.write_text('extends = "base.toml"\nseeds = 4\n')
    assert load_experiment(str(mine), "smoke").seeds == 4
    mine.write_text('extends = "nobody.toml"\n')
    with pytest.raises(InputError, check=Names("mine.toml", "extends")):
        load_experiment(str(mine), "smoke")


def test_the_example_of_the_manual_runs_the_rows_it_names(tmp_path: Path):
    manual = (FOLDER.parents[1] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    example = manual.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "mine.toml").write_text(example)
    for scale in SCALES:
        experiment = load_experiment(str(tmp_path / "mine.toml"), scale)
        assert {point.row for point in training_places(experiment, experiment.show)} == {"none", "causshield", "mine"}


def test_a_job_is_no_experiment(tmp_path: Path):
    job = tmp_path / "job.toml"
    job.write_text('[data]\nname = "digits"\n')
    with pytest.raises(InputError, match="veracausa train"):
        load_experiment(str(job), "smoke")
    with pytest.raises(InputError, match="no scale is named 'huge'"):
        load_experiment("causshield/table2", "huge")
