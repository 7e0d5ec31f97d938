"""CausShield: surrogates, causal representation learning, and the defense made of them."""

from veracausa.defenses.causshield.defense import CausShield as CausShield
from veracausa.defenses.causshield.options import CausShieldOptions as CausShieldOptions
