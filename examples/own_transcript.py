"""A training that veracausa knows nothing of, written down as a transcript and read again."""

from pathlib import Path

import torch

from veracausa.attacks.base import Exchange
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter

rng = torch.Generator().manual_seed(0)
rows, labels = torch.randn(100, 20, generator=rng), torch.randint(0, 2, (100,), generator=rng)
bottom = torch.nn.Linear(20, 64)

writer = TranscriptWriter(Path("mine"), Head(victim="bank", payload_shape=(64,), row_shape=(20,), classes=2))
for step in range(1, 31):  # your own loop: whatever crosses to the active party is an exchange
    ids = torch.randperm(100, generator=rng)[:10]
    writer.add(Exchange(step, ids, bottom(rows[ids]).detach(), labels[ids]))
writer.close()

transcript = Transcript(Path("mine"))
for exchange in transcript:  # a part at a time in memory
    assert exchange.payload.shape == (10, 64)
payloads, steps = transcript.all_payloads(torch.arange(100), most=8)  # the latest first; steps is -1 where none is
print(f"{len(transcript)} exchanges; {int((steps >= 0).sum())} payloads of 100 people")
