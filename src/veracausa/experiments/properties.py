"""A published table of properties of defenses: its claims beside what is seen of the defenses that are built here.

The claims stand in `_table1.toml` beside the experiments. What is seen is seen on one small bottom: each defense is
bound to it, prepared, and asked for the payload of its first exchange and for one at test time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from veracausa.errors import InputError
from veracausa.experiments.experiment import roots
from veracausa.experiments.table import markdown_table

if TYPE_CHECKING:
    from torch import Tensor

    from veracausa.defenses.base import Defense

CLAIMS = "_table1.toml"
TICK = "✓"
ROWS, SHAPES = 32, ((1, 8, 4), (3, 8, 4))
"""Of the small bottom's batch; colour where a defense takes nothing else."""
READING = """
No defense here sees a label, or anything of another party's: the contract of a defense has no place for it, and
`check_defense` refuses one that asks. So all of them are label-free in the paper's sense, and each fits VFL: a passive
party runs it alone. None has a guarantee. The table has the rest, of default settings on a small bottom. *First
exchange* and *at test time* say whether the payload differs from what the undefended bottom gives for the same rows,
*before training* whether the party makes something of its own rows first, *a loss of its own* whether the bottom learns
by more than the gradient that comes back. Where *first exchange* is *no*, the first payloads are those of an undefended
party, and an attacker keeps them: such a defense is not there from the first round on.
""".strip()
SEEN = (
    "defense",
    "first exchange",
    "at test time",
    "before training",
    "public data",
    "a loss of its own",
    "layers of its own",
    "depends on the batch",
)


class ClaimsSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimedMethod(ClaimsSection):
    """A row of the published table."""

    name: str
    marks: str = ""
    """The marks that our copy of the table has, in their order. The ticks are lost."""
    told: Mapping[str, str] = {}
    """Marks that the paper's text settles, by property."""
    defenses: tuple[str, ...] = ()
    missing: str = ""
    """Why it is not built."""


class ClaimedTable(ClaimsSection):
    """A published table of properties."""

    title: str
    about: str
    properties: tuple[str, ...]
    methods: tuple[ClaimedMethod, ...]

    def possible(self, method: ClaimedMethod) -> list[str]:
        """What each cell of the row may be: the lost ticks are put at all places that nothing rules out."""
        marks, width = method.marks.split(), len(self.properties)
        rows = []
        for places in combinations(range(width), len(marks)):
            row = [TICK] * width
            for place, mark in zip(places, marks, strict=True):
                row[place] = mark
            if all(row[self.properties.index(name)] == mark for name, mark in method.told.items()):
                rows.append(row)
        if not rows:
            raise InputError(f"{CLAIMS}: {method.name}: no order of its marks fits what is told of it")
        return [" or ".join(dict.fromkeys(cells)) for cells in zip(*rows, strict=True)]


@dataclass(frozen=True)
class SeenProperties:
    """What a defense with its default settings does, seen from outside."""

    first_exchange: bool
    """Whether the payload of the very first exchange differs from what the bottom gives."""
    test_time: bool
    """The same for a payload at test time."""
    before_training: bool
    """Whether it makes something of its own rows before the first exchange."""
    public_data: str
    """`no`, or the setting that takes a public data set."""
    own_loss: bool
    """Whether the bottom learns by more than the gradient that comes back: it has a penalty, or moves without one."""
    own_layers: bool
    """Whether it adds layers behind the bottom, which the partners have to fit."""
    depends_on_batch: bool
    """Whether a payload depends on the rows that are sent with it."""

    @property
    def cells(self) -> list[str]:
        """As the page shows them."""
        asked = (self.first_exchange, self.test_time, self.before_training)
        more = (self.own_loss, self.own_layers, self.depends_on_batch)
        return [*map(_word, asked), self.public_data, *map(_word, more)]


def read_claims(paper: str) -> ClaimedTable | None:
    """The paper's table of properties; None where it has none."""
    path = next((root / paper / CLAIMS for root in roots() if (root / paper / CLAIMS).is_file()), None)
    if path is None:
        return None
    try:
        return ClaimedTable.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


def properties_page(table: ClaimedTable) -> str:
    """The page: the claims, then what is seen of each defense that is built here."""
    from veracausa.defenses import defenses

    claims = [[method.name, *table.possible(method), _here(method)] for method in table.methods]
    known = [name for name in defenses.names() if defenses.get(name).__module__.startswith("veracausa.")]
    seen = [[f"`{name}`", *see(name).cells] for name in known]
    lines = [f"# {table.title}", "", "`veracausa reproduce --index` writes this page.", "", table.about.strip(), ""]
    lines += ["## What the paper claims", "", f"{TICK} yes, × no, ~ in part.", ""]
    lines += markdown_table(("method", *table.properties, "here"), claims)
    lines += ["", "## What is seen here", "", READING, "", *markdown_table(SEEN, seen), "", *_verdict(table)]
    return "\n".join(lines).rstrip() + "\n"


def see(name: str) -> SeenProperties:
    """Bind the defense to a small bottom, and look at what it sends."""
    import torch

    from veracausa.defenses.protocols import BatchDependent, HasLayers, Penalizes, Prepares

    defense, x = _bound(name)
    ids = torch.arange(ROWS)
    public = [field for field in ("source",) if field in type(defense.options).model_fields]
    made = bool(defense.prepared()) if isinstance(defense, Prepares) else False
    with torch.no_grad():
        learning, at_rest = deepcopy(defense.bottom).train()(x), deepcopy(defense.bottom).eval()(x)
    sent = defense.infer(x, ids)
    parts = zip(x.chunk(2), ids.chunk(2), strict=True)
    alone = torch.cat([defense.infer(rows, own) for rows, own in parts])
    before = [weight.detach().clone() for weight in defense.bottom.parameters()]
    payload, context = defense.forward(x, ids, 0)
    penalty = defense.penalty(context.representation, x) if isinstance(defense, Penalizes) else None
    defense.backward(context, torch.zeros_like(payload))
    moved = any(not torch.equal(*pair) for pair in zip(before, defense.bottom.parameters(), strict=True))
    return SeenProperties(
        first_exchange=not torch.allclose(payload, learning, atol=1e-6),
        test_time=not torch.allclose(sent, at_rest, atol=1e-6),
        before_training=made,
        public_data=f"only with `{public[0]}`" if public else "no",
        own_loss=moved or penalty is not None,
        own_layers=isinstance(defense, HasLayers) and defense.layers((8, *SHAPES[0][1:])) is not None,
        depends_on_batch=isinstance(defense, BatchDependent) and not torch.allclose(sent, alone, atol=1e-6),
    )


def _bound(name: str) -> tuple[Defense, Tensor]:
    import torch
    from torch import nn

    from veracausa import seeding
    from veracausa.data.vertical import Part
    from veracausa.defenses import defenses
    from veracausa.defenses.protocols import HasLayers, Prepares, Scheduled

    rng = seeding.generator(0, "properties")
    made: Defense = defenses.get(name)(defenses.options(name)(name=name))
    shape = next(shape for shape in SHAPES if _takes(made, shape))
    x = torch.rand(ROWS, *shape, generator=rng)
    with seeding.drawing_from(rng):
        bottom = nn.Sequential(nn.Conv2d(shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        if isinstance(made, HasLayers) and (layers := made.layers((8, *shape[1:]))) is not None:
            bottom.append(layers)
    if isinstance(made, Scheduled):
        made.on_schedule(10)
    made.key = seeding.derive_key(0, "properties")
    made.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.01), rng)
    if isinstance(made, Prepares):
        made.prepare(Part(ROWS, x.clone()))
    return made, x


def _takes(defense: Defense, shape: tuple[int, ...]) -> bool:
    try:
        defense.check(shape)
    except InputError:
        return False
    return True


def _here(method: ClaimedMethod) -> str:
    return ", ".join(f"`{name}`" for name in method.defenses) or "not built"


def _word(yes: bool) -> str:
    return "yes" if yes else "no"


def _verdict(table: ClaimedTable) -> Iterator[str]:
    yield "## What is not here"
    yield ""
    for method in (method for method in table.methods if not method.defenses):
        yield f"- **{method.name}**: {method.missing}"
    yield "- **Theoretical guarantee**: what CausShield's theorems claim is held against trained parties in"
    yield "  [theory](theory/README.md)."
    yield "- **Privacy and utility**: a matter of measurement, not of a tick. [Table II](table2/small/table.md) and"
    yield "  [Figure 1a](fig1a/small/table.md) have it."
