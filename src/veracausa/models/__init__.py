"""Models made of numbered units, and the cut between bottom and top."""

from veracausa.models.registry import Builder, Convention, ModelOptions, ModelRegistry, UserModel, require_allowed

models = ModelRegistry("model", "veracausa.models.zoo")

__all__ = ["Builder", "Convention", "ModelOptions", "ModelRegistry", "UserModel", "models", "require_allowed"]
