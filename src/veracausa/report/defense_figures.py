"""What a report shows of defenses: their diagnostics and the risk over the epochs, and what they prepared."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.report.figures import Chart, Curve, chart_svg
from veracausa.runs.record import RunRecord, invre, mapping, number, numbers

DIAGNOSTICS = {
    "drift": "How far what is sent lies from what the bottom model itself gives, as a share of its length. "
    "0: the defense changes nothing; high costs accuracy.",
    "causal_error": "Ψ of Definition 2: the squared distance between what is sent for a surrogate and what the bottom "
    "gives for the row, a mean over rows. The paper's convergence holds up to this.",
    "cka": "How alike what is sent and the undefended representation are, but for a rotation. "
    "Near 1 keeps the accuracy; it says nothing about what leaks.",
    "signal_to_noise_db": "The payload's variance between rows over the noise's power, in decibel. Lower hides more.",
    "dcor": "How far distances between payloads follow distances between rows (distance correlation, biased upwards). "
    "Lower is better; it is no bound on what a decoder reads.",
    "skipped": "Steps that went without NoPeek's penalty, because it was not finite. 0 is wanted.",
    "kept": "The share of channels whose gate is more than half open.",
    "closed_gate": "What a closed gate still lets through. Lower is better: whoever scales it up can read it.",
    "proxy_mse": "The error of the party's own adversary. Higher is better; another attacker may read more.",
    "decoder_ssim": "How well the party's own decoder reads its payloads (SSIM). Lower is better; a fresh decoder may "
    "read more.",
    "decoder_r2": "The same for a table: R², 0 for a blind guess.",
    "capacity_bits": "How many bits a payload can carry at most, by its power and its noise.",
    "correlation_diagonal": "How well each dimension agrees between a row and its surrogate. "
    "Higher is better: at 1 it ignores what the surrogate changed.",
    "correlation_off_diagonal": "How much different dimensions repeat each other. Lower is better.",
    "effective_rank": "In how many directions what is sent varies. Higher means less redundancy; "
    "it can also make inversion easier, so read it beside the risk.",
    "chroma_sensitivity": "How much of what is sent changes when a picture loses its colour. "
    "Lower is better: colour is what the defense is to hide.",
    "luminance_sensitivity": "How much of what is sent changes when a picture loses its light and dark. "
    "The task lives on it: it should stay well above the sensitivity to colour.",
    "mask_variance": "How much the masker's choice differs from row to row. Near 0 it no longer looks at the rows.",
    "mask_always_up": "The share of dimensions that the masker prefers for every row. "
    "Lower is better: at `tau` (0.5 unless set) all rows have the same mask.",
    "dead_dimensions": "The share of dimensions that hardly vary. Lower is better.",
    "iterations": "Adaptation steps for a batch. Fewer are cheaper.",
    "generator_loss": "What the adaptation minimises. Lower is better; rising means that it no longer keeps up.",
}
OWN = "A diagnostic of this defense's own."
RISK = (
    "InvRE: how much of a row the payload's Jacobian would give away, 0 nothing, 1 all of it. Lower is safer. "
    "No attack was run for it: an attacker with rows to learn from may read more."
)
CAPPED = (
    "This run's risk figures are not InvRE: an earlier version looked at a tenth of a row's directions only, and a "
    "payload that gives the whole row away could read 0.01. They are left out; train again to measure it."
)
GATES = {
    "l_ssim": "likeness of light and dark, row and surrogate (SSIM); below 0.5 the structure is lost",
    "intensity_ssim": "likeness of row and surrogate (SSIM); below 0.5 the structure is lost",
    "ab_distance": "how far colours moved, in ab units; 10 or more is wanted",
    "mean_absolute_change": "mean change of a value",
    "changed_share": "share of values that changed",
    "mean_standardised_change": "mean change of a value, in standard deviations of its column",
    "source_accuracy": "accuracy on the public source it was pretrained on",
    "source_ssim": "how well a strong decoder read it there (SSIM)",
    "out_of_gamut": "share of pixels that had to be clipped to what can be shown",
    "structure_lost": "the surrogates have lost the rows' structure",
    "colour_kept": "the surrogates have kept the rows' colour",
    "seconds": "seconds it took to make them",
    "cached": "taken from an earlier run",
}
WARNINGS = {
    "structure_lost": "the surrogates have lost the structure of the rows, so the defense is taught to ignore what the "
    "task needs",
    "colour_kept": "the surrogates have kept most of the colour, so the defense has little to learn to hide",
}
ALIKE_FROM = 0.5
"""Where a party's CKA was lower at the end of training, accuracy was 7 to 50 points below undefended (CIFAR-10)."""
_MAX_EXAMPLES = 8
_STRIP_SCALE = 48


@dataclass(frozen=True)
class DefenseFigure:
    """One small chart and the sentence that says how to read it."""

    svg: str
    sentence: str


def defense_figures(run: RunRecord) -> list[DefenseFigure]:
    """A chart a diagnostic with a line a party, and one of the risk; no chart without points."""
    known = [name for name in DIAGNOSTICS if any(_has(records, name) for records in run.measured.values())]
    others = dict.fromkeys(
        name
        for records in run.measured.values()
        for record in records
        for name in numbers(record.get("diagnostics"))
        if name not in DIAGNOSTICS
    )
    figures = [
        DefenseFigure(chart_svg(chart, small=True), DIAGNOSTICS.get(name, OWN))
        for name in (*known, *others)
        if (chart := _chart(_title(name), run.measured, "diagnostics", name))
    ]
    risk = _chart("Risk of inversion (InvRE)", _in_all_directions(run.measured), "risk", "invre")
    return [*([DefenseFigure(chart_svg(risk, small=True), RISK)] if risk else []), *figures]


def gate_rows(run: RunRecord) -> list[tuple[str, list[str]]]:
    """What each gate means, and its value at every party that prepared something."""
    gates = [mapping(record.get("gates")) for record in run.prepared.values()]
    names = dict.fromkeys(name for party in gates for name in party)
    return [
        (GATES.get(name, name.replace("_", " ")), [_shown(party.get(name)) for party in gates])
        for name in sorted(names, key=lambda name: list(GATES).index(name) if name in GATES else len(GATES))
    ]


def defense_warnings(run: RunRecord) -> list[str]:
    """A sentence for every gate that says that what was prepared is no good, and for a party that was moved too far."""
    return [
        f"At {party} {what}."
        for party, record in run.prepared.items()
        for name, what in WARNINGS.items()
        if mapping(record.get("gates")).get(name) is True
    ] + [
        f"What {party} sends has little left of what its bottom model learnt (CKA {cka:.2f}), so accuracy suffers: "
        "take fewer iterations or a lower lr_generator, or cut earlier."
        for party, records in run.measured.items()
        if records and (cka := numbers(records[-1].get("diagnostics")).get("cka")) is not None and cka < ALIKE_FROM
    ]


def risk_notes(run: RunRecord) -> list[str]:
    """InvRE at the end of training with what it took, and why there is none where it could not be measured."""
    notes, capped = [], False
    for party, told in run.parties.items():
        risk = mapping(told.get("risk"))
        found = invre(risk)
        if "unavailable" in risk:
            notes.append(f"InvRE at {party} has no value: {str(risk['unavailable']).rstrip('.')}.")
        elif found is not None:
            rows, seconds = number(risk.get("samples")) or 0, number(told.get("risk_seconds"))
            took = "" if seconds is None else f", which took {seconds:.1f} s"
            notes.append(
                f"After training, in all directions of {rows:.0f} rows{took}, InvRE at {party} is {found:.2f}."
            )
            if given := risk.get("given"):
                notes.append(f"At {party} that holds {given}.")
        else:
            capped = capped or number(risk.get("invre")) is not None
    return [*notes, *([CAPPED] if capped else [])]


def _in_all_directions(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    """The records whose risk is InvRE."""
    return {
        party: [record for record in records if invre(record.get("risk")) is not None]
        for party, records in measured.items()
    }


def example_strip(run: Path, party: str) -> str | None:
    """Rows above their surrogates as an inline PNG; None where the party kept no such pairs."""
    pairs = _examples(run / "parties" / party / "prepared.safetensors")
    if pairs is None:
        return None
    import numpy as np
    from PIL import Image

    count, _, channels, height, width = pairs.shape
    gap = max(1, height // 16)
    sheet = np.zeros((2 * height + gap, count * (width + gap) - gap, 4), dtype=np.uint8)
    for i, pair in enumerate(pairs):
        for j, picture in enumerate(pair):
            top, left = j * (height + gap), i * (width + gap)
            colours = picture.transpose(1, 2, 0)
            place = sheet[top : top + height, left : left + width]
            place[..., :3] = colours if channels == 3 else colours[..., :1]
            place[..., 3] = 255
    image = Image.fromarray(sheet, "RGBA")
    times = max(1, round(_STRIP_SCALE / height))
    image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _examples(path: Path) -> Any:
    """The tensor `examples` of a state file, and nothing else of it: surrogates of a whole data set are large."""
    if not path.is_file():
        return None
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118
                if key.rsplit("/", 1)[-1] != "examples":
                    continue
                pairs = file.get_slice(key)
                n, two, channels, *size = [*pairs.get_shape(), 0, 0, 0][:5]
                if two == 2 and channels in (1, 3) and all(size) and len(size) == 2 and pairs.get_dtype() == "U8" and n:
                    return pairs[:_MAX_EXAMPLES]
    except (safetensors.SafetensorError, OSError):
        pass  # a file torn by a crash: the report says what is there
    return None


def _has(records: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(name in numbers(record.get("diagnostics")) for record in records)


def _chart(title: str, measured: Mapping[str, Sequence[Mapping[str, Any]]], part: str, name: str) -> Chart | None:
    curves = []
    for i, (party, records) in enumerate(measured.items()):
        values = [(number(record.get("epoch")), numbers(record.get(part)).get(name)) for record in records]
        points = [(epoch, value) for epoch, value in values if epoch is not None and value is not None]
        if points:
            curves.append(Curve(party, points, series=i, dashed=i // 6 % 2 == 1))
    return Chart(title, curves) if curves else None


def _title(name: str) -> str:
    return "CKA" if name == "cka" else name.replace("_", " ").capitalize()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    found = number(value)
    return f"{found:.3g}" if found is not None else str(value) if value is not None else ""
