"""Surrogates: for each row another one that differs in what should not matter, and agrees in what should."""

from veracausa.defenses.causshield.surrogates.base import Surrogate
from veracausa.registry import Registry

surrogates: Registry[type[Surrogate]] = Registry("surrogate", "veracausa.defenses.causshield.surrogates")
