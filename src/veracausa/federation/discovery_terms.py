"""What a person is told of a causal discovery before saying yes: what crosses, who opens it, what it costs."""

from __future__ import annotations

from veracausa.data.causal.coding import some
from veracausa.discovery.engines.mpc.servers import named_servers
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums.words import few_rows_in_words
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.federation.consent import MATCHED, NOT_MATCHED, UNENCRYPTED, Row
from veracausa.federation.moments_messages import SumsAhead

SOLVABLE = (
    "PARTNERS CAN SOLVE FOR YOUR COLUMNS: of every row they open mixtures of them, and no encryption hides that; "
    'method = "moments" opens sums over all rows and no row'
)
"""Said wherever somebody could still say no to VFedCD."""
ASKED_OF_VFEDCD = "Partners can solve for your columns. Do you agree?"


def described_vfedcd(job: DiscoveryJob, method: VFedCD, me: str, aligned: bool) -> tuple[Row, ...]:
    """The rows of a discovery by networks; `aligned`: the parties' rows are matched first."""
    settings = method.settings()
    searches = f", {len(settings.searches)} searches" if len(settings.searches) > 1 else ""
    revealed = "the whole graph" if method.reveal == "all" else "the edges that touch its own columns"
    opened = "sums over rows; no partner opens a row" if method.strong else SOLVABLE
    if me == VALIDATOR and not method.strong:
        opened = "parties open features of rows, and can solve for each other's columns; you open strengths of edges"
    return (
        ("job", f"{job.name}: causal discovery; every party is told {revealed}"),
        ("model", f"{job.method}, of the registry; profile {settings.profile}"),
        ("opened", opened),
        *_collusion(job, method),
        ("epochs", f"{settings.epochs}, then {settings.refit_epochs} to refit{searches}"),
        ("defense", _noise(method)),
        ("encryption", describe_encryption(method)),
        ("matching", MATCHED["all"] if aligned else NOT_MATCHED),
    )


def _collusion(job: DiscoveryJob, method: VFedCD) -> tuple[Row, ...]:
    """Who must not put together what they hold."""
    if method.strong == "replicated":
        first, second, third = named_servers(method.settings().servers, tuple(job.parties))
        told = (
            f"{first}, {second} and {third} compute on shares: each alone opens nothing, and ANY TWO OF THEM TOGETHER "
            "CAN OPEN EVERY COLUMN"
        )
        return (("collusion", told),)
    if method.strong:
        return (("collusion", "the validator deals all masks: WITH ANY ONE PARTY IT CAN OPEN EVERY COLUMN"),)
    return ()


def describe_encryption(method: VFedCD) -> str:
    """What protects the columns that leave a party of a discovery."""
    if method.strong == "replicated":
        return "none is needed: columns leave as shares, which any two of the three that compute could put together"
    if method.strong:
        return "none is needed: columns leave as shares, which the validator and a partner could put together"
    if method.encryption == "none":
        return f"{UNENCRYPTED} (simulation = true)"
    return f"{method.encryption}: columns leave encrypted"


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


def described_moments(job: DiscoveryJob, ahead: SumsAhead, aligned: bool) -> tuple[Row, ...]:
    """The rows of a discovery from sums, as far as this member knows them beforehand."""
    settings = ahead.settings
    opener = "all members" if settings.receiver == "all" else "you" if ahead.me == VALIDATOR else VALIDATOR
    opened = "the validator" if opener == VALIDATOR else opener
    told = "the whole graph" if settings.reveal == "all" else "the edges that touch a party's own columns"
    crosses = f"{_summed(ahead)}, opened to {opened}; {_sums_noise(settings)}; no row leaves; result: {told}"
    return (
        ("job", f"{job.name}: causal discovery from sums over rows; every party is told {told}"),
        ("crosses", crosses),
        *((("columns", f"{some(ahead.own)}; their names and kinds are told to all"),) if ahead.own else ()),
        ("releases", _releases(ahead)),
        ("few rows", few_rows_in_words(ahead.plan)),
        ("encryption", describe_sums_encryption(settings, opened)),
        ("matching", MATCHED["all"] if aligned else NOT_MATCHED),
    )


def _summed(ahead: SumsAhead) -> str:
    others = "others' columns" if ahead.others is None else f"{_counted(ahead.others, 'column')} of others"
    if not ahead.own:
        columns = "all columns" if ahead.others is None else _counted(ahead.others, "column")
        return f"sums over all common rows of products of functions of {columns}"
    own = "your column's" if len(ahead.own) == 1 else f"your {len(ahead.own)} columns'"
    each = f"{own} functions (up to {ahead.functions} each, squares and cubes)"
    return f"sums over up to {ahead.rows:,} rows of products of {each} with those of {others}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def _sums_noise(settings: SumsSettings) -> str:
    if settings.epsilon is None:
        return "no noise (exact sums, no differential privacy)"
    return f"noise, epsilon = {settings.epsilon:g} (delta = {settings.delta:g}) for a row"


def _releases(ahead: SumsAhead) -> str:
    count, budget = ahead.plan.releases, ahead.settings.budget
    first = "one" if count == 1 else f"{count}: one, and one for each of {count - 1} resamples of the rows"
    if budget is None:
        return f"{first}; later ones of the same rows are refused"
    return f"{first}; all of the same rows together spend epsilon = {budget:g} at most"


def describe_sums_encryption(settings: SumsSettings, opened: str) -> str:
    """What protects the functions of columns that leave a party."""
    if settings.encryption == "none":
        return f"{UNENCRYPTED} (simulation = true)"
    opens = "open" if opened in ("you", "all members") else "opens"
    return (
        f"{settings.encryption}: functions of columns cross as ciphertexts, sums as shares; {opened} {opens} the sums"
    )
