"""Train blind across three parties from Python: the score, and what crossed."""

import veracausa

run = veracausa.train({"name": "digits", "data": {"name": "digits"}, "training": {"protocol": "blind"}})

print(f"run folder: {run.path}")
print(f"test accuracy: {run.summary['accuracy']:.3f}")
for name, party in run.summary["parties"].items():
    print(f"  {name} ({party['role']}): {party['messages']} messages, {party['bytes_sent']:,} bytes")
print(f"opened of a predicted picture: {run.summary['blind_training']['numbers']} numbers")
print(f"report: {run.report()}")
