"""`veracausa bench dispatch`: it counts what it says, times what really computes the results, and names its rows."""

from __future__ import annotations

import json
from inspect import getattr_static

import pytest
import typer
from refusals import Names
from typer.testing import CliRunner

from benchmarks import dispatch, dispatch_pair
from benchmarks.dispatch import SAMPLES, Case, ScalarRates, backend_costs, comparisons
from benchmarks.dispatch_pair import (
    KEY,
    MEDIAN,
    OFFLINE,
    ONLINE,
    SET_UP,
    STAGES,
    Costs,
    Sizes,
    Stopwatch,
    measure,
    watched,
)
from veracausa.crypto.backends.none import NoEncryption
from veracausa.errors import InputError, RunError

RATES = ScalarRates("phe", multiply=1e-4, encrypt=1e-2, obfuscate=1e-2, decrypt=1e-3)
TINY = Sizes(n=3, batches=2, looks=2, columns=2, targets=1, h=2)


def costs(seconds: float) -> Costs:
    return Costs(dict.fromkeys(STAGES, seconds), dict.fromkeys(STAGES, 10.0), {(OFFLINE, "draw"): seconds})


def test_the_papers_count_by_hand():
    case = Case(1000, 15, 3)
    assert case.multiplications == 2_250_000
    rows = {row.case: row for row in comparisons("bfv", case, costs(0.1), 1.0, RATES)}
    assert set(rows) == {"bfv vs paper", "bfv online vs paper", "bfv vs phe", "bfv vs phe in full"}
    assert rows["bfv vs paper"].against_seconds == pytest.approx(180)
    assert rows["bfv vs paper"].seconds == pytest.approx(0.2)
    assert rows["bfv vs paper"].extra["× faster"] == pytest.approx(900)
    assert rows["bfv online vs paper"].extra["× faster"] == pytest.approx(1800)
    assert rows["bfv vs phe"].against_seconds == pytest.approx(225)
    # Two peers: 5 × 150 weights and one's gradients go out, 1000 × 150 features and 5 × 50 increments come back.
    in_full = 225 + (2 * 750 + 50_000) * 1e-2 + 2 * (150_000 + 250) * 1.1e-2
    assert rows["bfv vs phe in full"].against_seconds == pytest.approx(in_full)
    assert "measured part" not in rows["bfv vs phe"].extra
    assert Case(16, 15, 3).batches == 50
    with pytest.raises(InputError, check=Names("--d 10", "3")):
        Case(16, 10, 3)


def test_costs_grow_with_peers_and_along_a_line():
    twice = costs(1.0).times(2)
    assert twice.seconds[KEY] == 1.0
    assert twice.seconds[OFFLINE] == 2.0 == twice.phases[OFFLINE, "draw"]
    assert twice.bytes[SET_UP] == 20.0
    far = costs(1.0).along(costs(3.0), 10.0)
    assert far.seconds[OFFLINE] == 21.0 == far.phases[OFFLINE, "draw"]
    assert far.seconds[ONLINE] == 3.0
    assert far.bytes[OFFLINE] == 10.0
    assert costs(3.0).along(costs(1.0), 10.0).seconds[OFFLINE] == 0.0
    assert far.with_stage(OFFLINE, costs(7.0)).seconds[OFFLINE] == 7.0


def test_long_batches_of_paillier_are_extended_and_say_so(monkeypatch):
    asked = []

    def measured(name, sizes, repeats):
        asked.append((name, sizes.n))
        return costs(1.0 + sizes.n)

    monkeypatch.setattr(dispatch, "measure", measured)
    cost, part = backend_costs("paillier", Case(1000, 15, 3), 5)
    assert asked == [*(("paillier", n) for n in SAMPLES), ("none", 1000)]
    assert cost.seconds[OFFLINE] == pytest.approx(2 * 1001) == cost.seconds[ONLINE]
    assert part == pytest.approx(sum(SAMPLES) / 1000)
    row = comparisons("paillier", Case(1000, 15, 3), cost, part, RATES)[0]
    assert row.extra["measured part"] == part
    assert backend_costs("paillier", Case(16, 15, 3), 5)[1] == 1.0
    assert asked[-1] == ("paillier", 16)


def test_every_phase_is_counted_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(dispatch_pair.time, "process_time", lambda: now[0])
    watch = Stopwatch()

    def spend(seconds):
        now[0] += seconds

    spend(5)
    with watch.phase("outside of any stage"):
        spend(7)
    with watch.stage("offline"):
        spend(1)
        with watch.phase("multiply"):
            spend(2)
            with watch.phase("draw"):
                spend(4)
            spend(8)
        spend(16)
    assert watch.seconds == {("offline", "other"): 17, ("offline", "multiply"): 10, ("offline", "draw"): 4}
    assert watch.stage_seconds("offline") == 31


def test_bytes_are_those_that_cross():
    found = measure("none", TINY, repeats=1)
    width = 2
    elements = {
        SET_UP: 2 * 3 * 2,
        OFFLINE: 3 * width + 2 * width,
        ONLINE: 2 * width + 2 * 3 * width,
        "look offline": 2 * 2 * width,
        "look online": 2 * 2 * width,
    }
    heads = {SET_UP: 1, OFFLINE: 1, ONLINE: 3, "look offline": 2, "look online": 2}
    for stage, count in elements.items():
        head = found.bytes[stage] - 8 * count
        assert 0 < head < 250 * heads[stage]
    assert all(found.seconds[stage] > 0 for stage in STAGES)


def test_the_least_disturbed_round_counts_and_the_median_stands_beside(monkeypatch):
    taken = iter([9.0, 5.0, 2.0, 4.0])  # the first one is watched

    def round_of(pair, watch):
        seconds = next(taken)
        watch.seconds[OFFLINE, "other"], watch.seconds[ONLINE, "other"] = seconds, seconds / 2

    monkeypatch.setattr(dispatch_pair.Pair, "round", round_of)
    found = measure("none", TINY, repeats=3)
    assert found.seconds[OFFLINE] == 2.0 / TINY.batches
    assert found.iteration == 3.0 / TINY.batches
    assert found.seconds[MEDIAN] == 6.0 / TINY.batches
    assert found.phases[OFFLINE, "other"] == 9.0 / TINY.batches


def test_times_of_a_wrong_result_are_refused(monkeypatch):
    class Wrong(NoEncryption):
        def decrypt_backward(self, *args):
            return super().decrypt_backward(*args) ^ 1

    monkeypatch.setattr(dispatch_pair, "make_encryption", lambda name, toss, party: Wrong())
    with pytest.raises(RunError, match="its times mean nothing"):
        measure("none", TINY, repeats=1)


def test_paillier_is_timed_by_its_phases(monkeypatch):
    pytest.importorskip("gmpy2")
    from veracausa.crypto.backends.paillier import Paillier

    monkeypatch.setattr(dispatch_pair, "make_encryption", lambda name, toss, party: Paillier.with_insecure_key(768))
    found = measure("paillier", TINY, repeats=0)
    offline = {phase for stage, phase in found.phases if stage == OFFLINE}
    assert offline >= {"draw", "multiply", "mask and re-randomise", "serialise", "validate", "decrypt", "message"}
    whole = sum(seconds for (stage, _), seconds in found.phases.items() if stage == OFFLINE)
    assert whole == pytest.approx(found.seconds[OFFLINE])


def test_bfv_is_timed_by_its_phases():
    pytest.importorskip("seal")
    found = measure("bfv", TINY, repeats=1)
    offline = {phase for stage, phase in found.phases if stage == OFFLINE}
    wanted = "encode transform multiply mask noise switch serialise validate decrypt draw message"
    assert offline >= set(wanted.split())
    assert (SET_UP, "encrypt") in found.phases
    assert found.phases[OFFLINE, "other"] < 0.5 * sum(found.phases[OFFLINE, phase] for phase in offline)


@pytest.mark.parametrize(("name", "library"), [("paillier", "gmpy2"), ("bfv", "seal")])
def test_what_is_watched_is_there_and_is_itself_again(name, library):
    pytest.importorskip(library)
    places = watched(name)
    before = [getattr_static(owner, function) for owner, function, _ in places]
    with Stopwatch().watching(places):
        assert all(getattr_static(owner, function) not in before for owner, function, _ in places)
    assert [getattr_static(owner, function) for owner, function, _ in places] == before


def test_the_command_ends_with_rows_for_machines(monkeypatch):
    from veracausa.cli.main import app

    monkeypatch.setattr(dispatch, "scalar_rates", lambda: RATES)
    asked = [
        "bench",
        "dispatch",
        "--n",
        "4",
        "--d",
        "4",
        "--parties",
        "2",
        "--backend",
        "none",
        "--repeats",
        "1",
        "--json",
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0
    report = json.loads(done.stdout.splitlines()[-1])
    assert [row["case"] for row in report["rows"]][:2] == ["none vs paper", "none online vs paper"]
    assert all(row["ratio"] > 0 for row in report["rows"])
    assert {"n", "d", "parties"} <= report["rows"][0].keys()


def test_scalar_paillier_without_phe(monkeypatch):
    pytest.importorskip("gmpy2")
    import sys

    monkeypatch.setitem(sys.modules, "phe", None)
    monkeypatch.setattr(dispatch, "_LEAST_SECONDS", 0.01)
    rates = dispatch.scalar_rates(bits=256)
    assert rates is not None
    assert "pip install phe" in rates.name
    assert 0 < rates.multiply < rates.obfuscate


def test_what_is_not_installed_is_left_out_and_what_was_asked_for_by_name_is_refused(monkeypatch, capsys):
    import sys

    for library in ("phe", "gmpy2", "seal"):
        monkeypatch.setitem(sys.modules, library, None)
    encrypting = tuple(f"veracausa.crypto.backends.{name}" for name in ("bfv", "paillier"))
    for module in [name for name in sys.modules if name.startswith(encrypting)]:
        monkeypatch.delitem(sys.modules, module)
    rows = dispatch.run(Case(4, 4, 2), repeats=1)
    assert {row.case.split()[0] for row in rows} == {"none"}
    assert not any("phe" in row.case for row in rows)
    told = capsys.readouterr().err
    assert all(f"{name}: left out" in told for name in ("bfv", "paillier", "phe"))
    with pytest.raises(InputError, match="not installed"):
        dispatch.run(Case(4, 4, 2), ["bfv"])
    with pytest.raises(InputError, match="no such encryption"):
        dispatch.run(Case(4, 4, 2), ["bvf"])


def test_an_installed_package_without_benchmarks_says_where_they_are(monkeypatch, tmp_path):
    from veracausa.cli import bench

    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    with pytest.raises(InputError, match="make bench NAME=runtime"):
        bench.bench(typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None))))
