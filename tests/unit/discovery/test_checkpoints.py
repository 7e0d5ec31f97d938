"""A fit in one place that is stopped anywhere goes on to the bits of one that was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import veracausa
from veracausa.data.causal import load_causal
from veracausa.discovery.engines import centralized as checkpoint
from veracausa.discovery.engines.centralized import GRAPH_STATE, RESAMPLES_STATE
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError

DATA = load_causal("synthetic", attributes=5, edges=6, rows=90, seed=1)
SHORT = {"epochs": 5, "refit_epochs": 4, "searches": []}


class Stopped(Exception):
    pass


def stop_at(what: str, share: float):
    def observer(event):
        if event.get("what") == what and event["share"] >= share:
            raise Stopped

    return observer


@pytest.fixture(autouse=True)
def after_every_epoch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)


@pytest.mark.parametrize("acyclicity", ["spectral", "trace_exponential"])
@pytest.mark.parametrize("epochs", [3, 5, 8, 9])
def test_a_stopped_fit_goes_on(tmp_path: Path, epochs: int, acyclicity: str):
    settings = {**SHORT, "acyclicity": acyclicity}
    whole = VFedCD(**settings).fit(DATA.values)
    with pytest.raises(Stopped):
        VFedCD(**settings).fit(DATA.values, out=tmp_path, observer=stop_at("graph", epochs / 9))
    seen = []
    again = VFedCD(**settings).fit(DATA.values, out=tmp_path, resume=True, observer=seen.append)
    assert len(seen) == 9 - epochs, "only what was missing is trained"
    assert np.array_equal(again.strengths_, whole.strengths_)
    assert again.threshold_ == whole.threshold_
    assert again.history_ == whole.history_


def test_stopped_resamples_go_on(tmp_path: Path):
    whole = VFedCD(**SHORT, bootstrap=3).fit(DATA.values)
    with pytest.raises(Stopped):
        VFedCD(**SHORT, bootstrap=3).fit(DATA.values, out=tmp_path, observer=stop_at("resamples", 0.6))
    assert (tmp_path / RESAMPLES_STATE).is_file()
    again = VFedCD(**SHORT, bootstrap=3).fit(DATA.values, out=tmp_path, resume=True)
    assert np.array_equal(again.confidence_, whole.confidence_)
    assert np.array_equal(again.strengths_, whole.strengths_)


def test_a_checkpoint_of_another_fit_is_not_taken(tmp_path: Path):
    VFedCD(**SHORT).fit(DATA.values, out=tmp_path)
    with pytest.raises(InputError, match=r"graph\.safetensors: was begun with other rows or settings"):
        VFedCD(**SHORT).fit(DATA.values + 0.1 * DATA.values**2, out=tmp_path, resume=True)
    with pytest.raises(InputError, match="other rows or settings"):
        VFedCD(**SHORT, learning_rate=0.02).fit(DATA.values, out=tmp_path, resume=True)


def test_a_torn_checkpoint_begins_anew(tmp_path: Path):
    whole = VFedCD(**SHORT).fit(DATA.values, out=tmp_path)
    file = tmp_path / GRAPH_STATE
    file.write_bytes(file.read_bytes()[:100])
    again = VFedCD(**SHORT).fit(DATA.values, out=tmp_path, resume=True)
    assert np.array_equal(again.strengths_, whole.strengths_)


def test_without_resume_an_old_checkpoint_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    VFedCD(**SHORT).fit(DATA.values, out=tmp_path)
    monkeypatch.setattr(checkpoint, "EVERY", 1e9)
    VFedCD(**SHORT, seed=1).fit(DATA.values, out=tmp_path)
    assert not (tmp_path / GRAPH_STATE).exists()


def test_a_stopped_run_goes_on_and_leaves_no_checkpoint(tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        veracausa.discover(DATA.values, method="vfedcd", out=out, observer=stop_at("graph", 0.5), **SHORT)
    assert (out / "checkpoints" / GRAPH_STATE).is_file()
    run = veracausa.discover(DATA.values, method="vfedcd", out=out, resume=True, **SHORT)
    assert not (out / "checkpoints").exists()
    whole = veracausa.discover(DATA.values, method="vfedcd", out=tmp_path / "whole", **SHORT)
    assert run.edges == whole.edges
