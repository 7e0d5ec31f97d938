"""Read what left each party of a run: kinds, shapes and bytes, never the values."""

import sys
from collections import Counter
from pathlib import Path

import veracausa
from veracausa.wire.ledger import read_ledger

if len(sys.argv) > 1:
    run = veracausa.Run(sys.argv[1])
else:
    run = veracausa.train(
        {"data": {"name": "digits"}, "model": {"name": "convnet"}, "training": {"epochs": 1, "batch_size": 64}}
    )

for ledger in sorted(Path(run.path).glob("parties/*/ledger.jsonl")):
    messages: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    for line in read_ledger(ledger):
        messages[line["kind"], line["to"]] += 1
        sent[line["kind"], line["to"]] += line["bytes"]
    print(ledger.parent.name)
    for (kind, to), nbytes in sent.most_common():
        print(f"  {kind} to {to}: {messages[kind, to]} messages, {nbytes:,} bytes")
