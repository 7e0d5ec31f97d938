"""Models made of numbered units, and the cut between bottom and top.

`zoo/` holds one file a model. `cut` builds the halves, `runner` runs a module as the job wants it, `decoders` holds the
networks that attacks and defenses read payloads with. Others may import those modules and what is named here.
"""

from veracausa.models.registry import Builder, Convention, ModelOptions, ModelRegistry, UserModel, require_allowed

models = ModelRegistry("model", "veracausa.models.zoo")

__all__ = ["Builder", "Convention", "ModelOptions", "ModelRegistry", "UserModel", "models", "require_allowed"]
