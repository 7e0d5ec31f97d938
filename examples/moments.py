"""Two parties compute the sums over rows of all products of their columns; the shop alone opens them."""

import threading

import numpy as np

from veracausa.crypto.moments import MomentParty, MomentPlan, cut
from veracausa.crypto.randomness import SecureDraws
from veracausa.wire.threads import thread_links

draw = np.random.default_rng(0)
features = {"shop": draw.normal(size=(1000, 3)), "bank": draw.normal(size=(1000, 4))}
plan = MomentPlan(("shop", "bank"), {"shop": 3, "bank": 4}, rows=1000, receiver="shop")
links = thread_links(["shop", "bank"])
opened = {}


def take_part(party: str) -> None:
    """Each party holds its own columns and one end of a link."""
    blocks = cut(features[party], plan.block_rows)
    opened[party] = MomentParty(plan, party, blocks, SecureDraws()).run(links[party])


threads = [threading.Thread(target=take_part, args=(party,)) for party in features]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

whole = np.concatenate([features["shop"], features["bank"]], axis=1)
print("the bank opened:", opened["bank"])
print("largest error of a sum:", f"{np.abs(opened['shop'].gram - whole.T @ whole).max():.2f}")
