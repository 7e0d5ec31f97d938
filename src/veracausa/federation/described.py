"""What a party is asked to agree to, in plain rows: model, epochs, defense, encryption, matching."""

from __future__ import annotations

from veracausa.config import Job
from veracausa.data.tables import TableFileOptions
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.vfedcd import VFedCD
from veracausa.registry import Options

Row = tuple[str, str]
"""What it is about, and what the job says of it."""

UNENCRYPTED = "NONE: COLUMNS LEAVE UNENCRYPTED"
"""Said in capitals wherever somebody could still say no."""
_MATCHED = {
    "all": "all: the rows that every party has, found without showing ids",
    "active": "active: every row of the active party's, found without showing ids; a party may lack some",
}
_NOT_MATCHED = "none: every site has the same data set"


def described_training(job: Job, me: str) -> tuple[Row, ...]:
    """The rows of a split training; `job` is the agreed one with this party's own part."""
    active = job.parties.active
    schedule = f"{job.training.epochs}, in batches of {job.training.batch_size}"
    match = _MATCHED[job.data.match] if isinstance(job.data, TableFileOptions) else _NOT_MATCHED
    return (
        ("job", f"{job.name}: split training; {active} has the labels and gets the predictions"),
        ("model", f"{_model(job)}, cut after unit {job.model.cut}"),
        ("epochs", schedule),
        ("defense", _defense(job, me)),
        ("encryption", f"of the connection only; {active} reads the payloads, defended or not"),
        ("matching", match),
    )


def described_discovery(job: DiscoveryJob, method: VFedCD, aligned: bool) -> tuple[Row, ...]:
    """The rows of a causal discovery; `aligned`: the parties' rows are matched first."""
    settings = method.settings()
    searches = f", {len(settings.searches)} searches" if len(settings.searches) > 1 else ""
    told = "the whole graph" if method.reveal == "all" else "the edges that touch its own columns"
    return (
        ("job", f"{job.name}: causal discovery; every party is told {told}"),
        ("model", f"{job.method}, of the registry; profile {method.profile}"),
        ("epochs", f"{settings.epochs}, then {settings.refit_epochs} to refit{searches}"),
        ("defense", _noise(method)),
        ("encryption", encryption_in_words(method)),
        ("matching", _MATCHED["all"] if aligned else _NOT_MATCHED),
    )


def encryption_in_words(method: VFedCD) -> str:
    """What protects the columns that leave a party of a discovery."""
    if method.strong:
        return "none is needed: columns leave as shares, which the validator and a partner could put together"
    if method.encryption == "none":
        return f"{UNENCRYPTED} (simulation = true)"
    return f"{method.encryption}: columns leave encrypted"


def _model(job: Job) -> str:
    name = job.model.name
    if ":" not in name:
        return f"{name}, of the registry"
    return f"{name}: CODE OUTSIDE THE REGISTRY, which you have allowed to run here"


def _defense(job: Job, me: str) -> str:
    if me == job.parties.active:
        return f"each passive party's own; where it has none, {_with_settings(job.defense)}"
    chosen = job.defense_of(me)
    own = job.party.get(me)
    whose = "by your party.toml" if own is not None and own.defense is not None else "by the job"
    if chosen.name == "none":
        return f"none, {whose}: what you send is not defended"
    return f"{_with_settings(chosen)}, {whose}"


def _with_settings(defense: Options) -> str:
    settings = defense.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    return f"{defense.name} ({', '.join(f'{k} = {v}' for k, v in settings.items())})" if settings else defense.name


def _noise(method: VFedCD) -> str:
    settings, found = method.settings(), []
    if method.strong:
        found.append("strong: of rows only sums are opened")
    if method.epsilon is not None:
        found.append(f"differential privacy against the validator, epsilon {method.epsilon}, delta {method.delta}")
    if method.laplace is not None:
        found.append(f"Laplace noise on strengths ({method.laplace}), a heuristic without a guarantee")
    if settings.row_noise:
        found.append(f"noise of {settings.row_noise} on what is opened of a row")
    if settings.bottleneck:
        found.append(f"{settings.bottleneck} numbers opened of a row")
    return "; ".join(found) or "none: partners can solve for columns from what is opened of rows"
