"""Models made of numbered units, and the cut between bottom and top."""

from veracausa.models.options import Convention, ModelOptions, UserModel
from veracausa.models.user_model import Builder, ModelRegistry, require_allowed

models = ModelRegistry("model", "veracausa.models.zoo")

__all__ = ["Builder", "Convention", "ModelOptions", "ModelRegistry", "UserModel", "models", "require_allowed"]
