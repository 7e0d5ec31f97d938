"""What an estimator asks for of noise, output and secrets, and what a guarantee excludes: refused before the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from veracausa.discovery.methods.vfedcd.as_published import laplace
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import BY_LIKELIHOOD
from veracausa.discovery.privacy.mechanism import mechanism_of, statement
from veracausa.discovery.privacy.options import OUTPUTS, Privacy
from veracausa.errors import InputError, wrong_value

if TYPE_CHECKING:
    from veracausa.discovery.engines.shares.plan import Plan


def stated(plan: Plan, restart_index: int, seeded: bool) -> dict[str, object] | None:
    """What a run's noise guarantees, or that it does not; `restart_index`: how often it was started before.

    A resumed run releases the epochs since its last checkpoint once more, with new noise.
    """
    if plan.privacy is not None:
        return statement(plan.privacy, plan.epochs + restart_index * plan.checkpoint_every, plan.epochs, seeded)
    return None if plan.laplace is None else laplace.statement(plan.laplace, len(plan.parties))


def check_privacy(plan: Plan) -> None:
    """Refuse a plan that would release more than is accounted for."""
    if plan.output not in OUTPUTS:
        raise InputError(f"output = {plan.output!r}: a party is told of its 'own' edges or of 'all'")
    if plan.laplace is not None and plan.validator == "M1":
        raise InputError(
            "laplace: a validator in mode M1 has the weights, and noise on strengths hides nothing; use M2"
        )
    if plan.shares == "all" and (plan.output == "own" or (plan.laplace is not None and plan.laplace.rule == "sum")):
        raise InputError(
            "output = 'own', and parts of Laplace noise, are for blocks of two holders; with more, every party is told "
            "all factors; use shares = 'two'"
        )
    if plan.privacy is None:
        return
    if plan.laplace is not None:
        raise InputError("laplace: noise on strengths adds nothing to a guarantee; leave it out, or leave privacy out")
    if plan.validator == "M1":
        raise InputError("privacy: in mode M1 the validator is sent weights; use M2")
    if plan.shares == "all":
        raise InputError("privacy: noise is added to the shares of two holders; use shares = 'two'")
    if plan.settings.bottleneck is not None:
        raise InputError("privacy: it is not built for a bottleneck; leave one of the two out")
    if plan.settings.likelihood not in ("gaussian", "mse"):
        raise InputError(
            f"privacy: it is not built for the likelihood {plan.settings.likelihood!r}; set likelihood to 'gaussian'"
        )
    if len(plan.searches) > 1:
        raise InputError("privacy: no losses are sent to choose one of several searches by; set searches to []")
    if plan.settings.noisy_rate != 1 or plan.settings.refit_noisy_rate != 1:
        raise InputError("privacy: it is not built for noisy_rate and refit_noisy_rate; leave them out")
    if plan.local_steps > 1:
        raise InputError(
            f"privacy: {plan.local_steps} local steps use a row so often for one release, and are not accounted for; "
            "set local_steps = 1"
        )
    if plan.settings.threshold in BY_LIKELIHOOD or plan.held_out:
        raise InputError(
            "privacy: losses of held-out rows would be released without noise; set held_out = 0 and threshold to a "
            "number or to 'mixture'"
        )
    mechanism_of(plan, plan.privacy)


def check_choice(settings: Settings, engine: str, bootstrap: int = 0) -> None:
    """Refuse combinations of protections that would mislead."""
    if engine != "federated":
        if settings.epsilon is not None or settings.laplace is not None:
            raise InputError("epsilon, laplace: they are about what a validator sees; name the parties")
        if settings.protocol == "literal":
            raise InputError("protocol: it is about what parties send to each other; name the parties")
        if settings.strong:
            raise InputError("strong: it is about what parties open to each other; name the parties")
        if settings.bottleneck or settings.row_noise:
            raise InputError("bottleneck, row_noise: they are about what parties open to each other; name the parties")
        return
    if settings.likelihood == "tested":
        raise InputError(
            "likelihood: 'tested' compares the rows of all columns, in one place only; between parties take 'auto', or "
            "one of the two"
        )
    if settings.strong and (odd := _not_strong(settings)):
        why = ", because its shares hide columns by themselves" if odd == "encryption" else ""
        raise InputError(f"strong: it takes no {odd}{why}; leave {odd} out")
    if settings.epsilon is not None and bootstrap:
        raise InputError("bootstrap: every resample would be one more release of all rows; set it to 0")
    noise_of(settings)


def noise_of(settings: Settings) -> dict[str, Any]:
    """`privacy` and `laplace` of a plan, as the settings ask for them."""
    epsilon, scale = settings.epsilon, settings.laplace
    try:
        privacy, heuristic = None, None
        if epsilon is not None:
            known = {"delta": settings.delta, "clip": settings.clip, "values": settings.row_norm_bound}
            privacy = Privacy(epsilon=epsilon, **known)
        if scale is not None:
            heuristic = LaplaceHeuristic(epsilon=scale, rule=settings.laplace_rule)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"vfedcd: {problem['loc'][0]}: {wrong_value(problem)}") from None
    return {"privacy": privacy, "laplace": heuristic}


def needs_secrets(settings: Settings) -> bool:
    """Whether masks, first weights and noise must come from the system: a seed that everybody knows gives them away."""
    return settings.epsilon is not None or settings.encryption != "none" or bool(settings.strong)


def _not_strong(settings: Settings) -> str:
    """What was asked for and the strong mode has not; empty: nothing."""
    names = ("shares", "encryption", "validator", "local_steps", "reveal", "epsilon", "laplace")
    return next((name for name in names if getattr(settings, name) != Settings.model_fields[name].default), "")
