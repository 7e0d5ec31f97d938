"""What crosses in the protocol as published, and what a plan must be for it."""

from __future__ import annotations

import torch

from veracausa.discovery.engines.literal.numbers import LEAST_KEY_BITS, PLAIN_BYTES
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError
from veracausa.wire.message import Kind, TensorSpec

UNSOUND = (
    "protocol = 'literal' is the published protocol, for simulations in one place: its masks are floats, which "
    "averages over the steps see through, and every target opens features of every row; leave the setting out"
)
"""Why no organisation runs it with another."""
WARNING = (
    "protocol literal: the published algorithms, for study only. Masks are floats of the size of the data, features "
    "of every row are opened, and the validator adds up norms of fragments: columns can be recovered, and strengths "
    "are not those of the model (results/vfedcd/literal)"
)
SHORT_KEY = "key_bits {bits}: such Paillier keys can be broken; they are for simulations of the literal protocol only"
SAFE_KEY_BITS = 3072


def published_warnings(settings: Settings) -> tuple[str, ...]:
    """What is said of every fit by this protocol."""
    short = settings.encryption == "paillier" and settings.key_bits < SAFE_KEY_BITS
    return (WARNING, *((SHORT_KEY.format(bits=settings.key_bits),) if short else ()))


MOST_CIPHERTEXTS = 5_000_000
"""Masked ones, of a whole fit: with keys of 1024 bits some hours, with longer ones days."""

KEY = Kind("key", {"key": TensorSpec(torch.uint8, (None,))})


def encoders(plan: Plan, bits: int) -> Kind:
    """Encrypted fragments of encoders (algorithms 2 and 4)."""
    return Kind("encoders", {"encoders": _numbers(plan.d**2 * plan.settings.width, bits)})


def remaining(plan: Plan, bits: int) -> Kind:
    """A product less its mask, for the key's owner (algorithm 1)."""
    rows = max(plan.settings.batch, max(plan.sizes))
    return Kind("remaining", {"masked": _numbers(rows * plan.d * plan.settings.width, bits)})


def gradient(plan: Plan, bits: int) -> Kind:
    """The encrypted gradient of a target's features (algorithm 4)."""
    return Kind("gradient", {"gradient": _numbers(plan.settings.batch * max(plan.sizes) * plan.settings.width, bits)})


def feature_part(plan: Plan) -> Kind:
    """z_kt, in clear (algorithm 3)."""
    return Kind(
        "feature part", {"z": TensorSpec(torch.float64, (None, None), plan.rows + plan.d * plan.settings.width)}
    )


def structure(plan: Plan) -> Kind:
    """Norms of a party's fragments (algorithm 5); the loss is ours, so that a run can be followed."""
    return Kind("structure", {"norms": TensorSpec(torch.float64, (plan.d, plan.d))}, {"loss": float})


def split(plan: Plan) -> Kind:
    """A party's part of the gradient of the structure (algorithm 6)."""
    return Kind("split", {"gradient": TensorSpec(torch.float64, (plan.d, plan.d))})


def _numbers(count: int, bits: int) -> TensorSpec:
    return TensorSpec(torch.uint8, (None,), count * max(2 * bits // 8 + 8, PLAIN_BYTES) + 64)


def masked_ciphertexts(plan: Plan) -> int:
    """How many ciphertexts all parties mask in a fit: features of all fragments, and gradients of all encoders."""
    others, h = len(plan.parties) - 1, plan.settings.width
    between = plan.d**2 - sum(size**2 for size in plan.sizes)
    a_step = len(plan.parties) * others * len(plan.batches[0]) * plan.d * h + between * h
    return a_step * len(plan.batches) * plan.settings.epochs


def check_literal(plan: Plan) -> None:
    """Refuse what the published protocol does not have, and what it would never end with."""
    settings = plan.settings
    wanted = {
        "refit_epochs": (settings.refit_epochs == 0, "it has no refit; set it to 0"),
        "searches": (not settings.searches, "it has one search; set it to []"),
        "likelihood": (settings.likelihood not in ("auto", "tested"), "it compares no searches; name one"),
        "refits": (not settings.refits, "it has no refit; set it to []"),
        "noisy_rate": (settings.noisy_rate == 1, "all attributes learn at one rate; set it to 1"),
        "threshold": (isinstance(settings.threshold, float), "nobody scores held-out rows; give a number"),
        "sparsity": (settings.sparsity == "group_lasso", "its validator penalises ‖B‖₁; take 'group_lasso'"),
        "start": (settings.start == "empty", "it begins with no graph; set it to 'empty'"),
        "local_steps": (plan.local_steps == 1, "it exchanges at every step; set it to 1"),
        "reveal": (settings.reveal == "all", "all parties are told the graph; set it to 'all'"),
        "encryption": (plan.encryption in ("paillier", "none"), "the paper takes Paillier; set 'paillier' or 'none'"),
        "key_bits": (settings.key_bits >= LEAST_KEY_BITS, f"take {LEAST_KEY_BITS} at least"),
        "strong": (not settings.strong, "it is another protocol; leave one of the two out"),
    }
    for name in ("epsilon", "bottleneck", "row_noise", "laplace"):
        wanted[name] = (getattr(settings, name) is None, "it is not in the published algorithms; leave it out")
    for name, (met, why) in wanted.items():
        if not met:
            raise InputError(f"protocol = 'literal', {name}: {why} (profile 'literal' has the published settings)")
    count = masked_ciphertexts(plan)
    if plan.encryption == "paillier" and count > MOST_CIPHERTEXTS:
        raise InputError(
            f"protocol = 'literal': this fit masks {count:,} ciphertexts, about a millisecond each at best; at most "
            f"{MOST_CIPHERTEXTS:,} are taken: take fewer rows, columns or epochs, or encryption 'none'"
        )
