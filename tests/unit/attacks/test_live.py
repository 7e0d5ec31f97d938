"""Attacks beside a real training, over the real wire: they see all, change nothing but by tampering, and come back."""

from __future__ import annotations

import pytest
import torch
from refusals import Names
from torch import nn

from veracausa.attacks import attacks
from veracausa.attacks.base import Exchange, Grant, LiveAttack
from veracausa.audit.attacker import AdversaryKnowledge, AttackHook, AttackHookFactory
from veracausa.audit.live import restored, run_live
from veracausa.audit.sample import choose
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.errors import InputError
from veracausa.models.runner import eval_output
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.runs.store import deserialize_state, same
from veracausa.training.train import train

pytestmark = pytest.mark.xdist_group("live")  # what its tests share is made once, not once a worker

JOB = {
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 2},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "training": {"epochs": 1, "batch_size": 256, "evaluate_every": 9},
    "checkpoints": {"every_steps": 2},
    "risk": {"every": 0},
}
PARTIES = ("active", "passive_1", "passive_2")
PCAT = attacks.options("pcat")(name="pcat", epochs=1, blocks=0, channels=4, batch=16)
URVFL = attacks.options("urvfl")(name="urvfl", epochs=1)


def models_of(run: Run) -> dict[str, bytes]:
    return {name: (run.path / "parties" / name / "model.safetensors").read_bytes() for name in PARTIES}


def state_of(run: Run, name: str) -> dict:
    return deserialize_state((run.path / "attacks" / name / "state.safetensors").read_bytes())


@pytest.fixture(scope="module", autouse=True)
def _one_thread_from_the_start():
    """The runs that several tests share are made before the fixture that every test has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Run:
    return train(JOB, tmp_path_factory.mktemp("live") / "honest")


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Run:
    return run_live(JOB, PCAT, "passive_1", tmp_path_factory.mktemp("live") / "watched")


@pytest.fixture(scope="module")
def hijacked(tmp_path_factory) -> Run:
    return run_live(JOB, URVFL, "passive_1", tmp_path_factory.mktemp("live") / "hijacked")


def test_an_attack_that_only_watches_leaves_the_training_as_it_was(honest, watched):
    assert models_of(honest) == models_of(watched)
    assert honest.summary["accuracy"] == watched.summary["accuracy"]
    assert honest.summary["bytes_sent"] == watched.summary["bytes_sent"]


def test_an_attack_that_tampers_changes_its_victim_alone(honest, hijacked):
    before, after = models_of(honest), models_of(hijacked)
    first, second = (deserialize_state(models["passive_1"])["bottom"] for models in (before, after))
    assert not same(first, second)
    assert honest.summary["bytes_sent"] == hijacked.summary["bytes_sent"], "on the wire a gradient is a gradient"


def test_it_comes_back_with_what_it_learnt(watched):
    attack = restored(watched, "pcat", "passive_1")
    assert attack.notes()["exchanges"] == 6
    assert attack.notes()["held_out_mse"] > 0
    guess = attack.reconstruct(torch.randn(3, *attack.view.payload_shape), torch.arange(3))
    assert guess.shape == (3, 1, 8, 4)
    with pytest.raises(InputError, match="watched 'passive_1'"):
        restored(watched, "pcat", "passive_2")
    with pytest.raises(InputError, match="did not watch"):
        restored(watched, "urvfl", "passive_1")


@pytest.mark.parametrize("options", [PCAT, URVFL], ids=lambda options: options.name)
def test_a_killed_run_goes_on_to_the_same_attack(tmp_path, request, options):
    whole = request.getfixturevalue("watched" if options is PCAT else "hijacked")

    def stop(event):
        if event["event"] == "step" and event["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(BaseException):  # noqa: B017, PT011
        run_live(JOB, options, "passive_1", tmp_path / "run", observer=stop)
    with pytest.raises(InputError, match="not finished"):
        restored(Run(tmp_path / "run"), options.name, "passive_1")
    resumed = run_live(JOB, options, "passive_1", tmp_path / "run", resume=True)
    assert models_of(whole) == models_of(resumed)
    assert same(state_of(whole, options.name), state_of(resumed, options.name))
    # Once more: nothing is left to do.
    assert same(
        state_of(run_live(JOB, options, "passive_1", resumed.path, resume=True), options.name),
        state_of(whole, options.name),
    )


def test_a_resume_with_other_settings_is_refused(watched):
    other = PCAT.model_copy(update={"batch": 8})
    with pytest.raises(InputError, check=Names("live.json", "16", "8")):
        run_live(JOB, other, "passive_1", watched.path, resume=True)


@pytest.mark.parametrize(
    ("options", "victim", "words"),
    [
        ([], "passive_1", "at least one"),
        ([PCAT, PCAT], "passive_1", "only once"),
        ([PCAT, URVFL], "passive_1", "a run of its own"),
        (PCAT, "passive_3", "no passive party"),
        (attacks.options("inverse")(name="inverse"), "passive_1", "no live run"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, options, victim, words):
    with pytest.raises(InputError, match=words):
        run_live(JOB, options, victim, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_auxiliary_row_is_a_victim_and_all_parties_rows_are_of_the_same_people():
    job = load_job(JOB)
    dataset = load(job)
    knowledge = AdversaryKnowledge.of(job, dataset, "passive_1", 60, 50)
    sample = choose(dataset.parties["passive_1"], job.seed, 60, 50)
    assert not set(sample.auxiliary.tolist()) & set(sample.victims["test"].tolist())
    for name in ("passive_1", "passive_2"):
        assert torch.equal(knowledge.rows[name], dataset.parties[name].test.take(sample.auxiliary))
    view = knowledge.view(PCAT, None)
    assert torch.equal(view.auxiliary, knowledge.rows["passive_1"])
    assert Grant.WEIGHTS not in view.grants
    assert not hasattr(view, "oracle")


class Counting(LiveAttack):
    """Sees exchanges in the order of a live run."""

    needs = Grant.TAMPER

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.heard: list[str] = []

    def tamper(self, gradient, exchange: Exchange):
        self.heard.append(f"tamper {exchange.step} {tuple(gradient.shape) == tuple(exchange.payload.shape)}")
        return gradient + 1

    def observe(self, exchange: Exchange) -> None:
        self.heard.append(f"observe {exchange.step} {len(exchange.ids)} {sorted(exchange.others)}")


def test_rows_that_the_victim_lacks_are_kept_from_the_attack(tmp_path):
    knowledge = AdversaryKnowledge(load_job(JOB), "bank", None, {}, None, None)
    watcher = AttackHook(AttackHookFactory(knowledge, Options(name="x"), tmp_path))
    watcher.attack = Counting(Options(name="x"))
    watcher.present = torch.tensor([True, False, True, True])
    payloads = {"bank": torch.randn(4, 2), "shop": torch.randn(4, 3)}
    watcher.on_payloads(7, torch.tensor([0, 1, 2, 3]), payloads, torch.arange(4))
    gradient = torch.zeros(4, 2)
    assert torch.equal(watcher.on_gradient("shop", gradient), gradient)
    assert watcher.on_gradient("bank", gradient).tolist() == [[1, 1], [0, 0], [1, 1], [1, 1]]
    watcher.on_step_end()
    assert watcher.attack.heard == ["tamper 7 True", "observe 7 3 ['shop']"]
    watcher.on_payloads(8, torch.tensor([1, 1, 1, 0]), payloads, torch.arange(4))
    assert torch.equal(watcher.on_gradient("bank", gradient), gradient)
    watcher.on_step_end()
    assert len(watcher.attack.heard) == 2, "a single row has no batch statistics"


def test_asking_the_top_model_leaves_no_trace():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(5, 3, requires_grad=True)
    eval_output(model, x).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.abs().sum() > 0)
    assert same(before, model.state_dict())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(module.training for module in model.modules())


@pytest.mark.slow
def test_a_live_run_in_processes_is_the_same(tmp_path, hijacked):
    run = run_live({**JOB, "runtime": {**JOB["runtime"], "link": "processes"}}, URVFL, "passive_1", tmp_path / "run")
    assert same(state_of(run, "urvfl"), state_of(hijacked, "urvfl"))


@pytest.mark.slow
def test_an_active_party_that_holds_features_itself_attacks_too(tmp_path) -> None:
    job = {**JOB, "partition": {"active_has_features": True}, "checkpoints": {}}
    sdar = attacks.options("sdar")(name="sdar", blocks=0, channels=4)
    run = run_live(job, [PCAT, sdar], "passive_1", tmp_path / "run", auxiliary=64, victims=8)
    data = load(run.job).parties["passive_1"]
    for name in ("pcat", "sdar"):
        attack = restored(run, name, "passive_1")
        assert attack.notes()["exchanges"] == run.summary["rounds"]
        guess = attack.reconstruct(torch.zeros(2, *attack.view.payload_shape), torch.arange(2))
        assert guess.shape == (2, *data.shape)
