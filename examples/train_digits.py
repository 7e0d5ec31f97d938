"""Train across three parties from Python and print the summary."""

import veracausa

run = veracausa.train(
    {
        "name": "digits",
        "data": {"name": "digits"},
        "model": {"name": "convnet", "cut": 6},
        "training": {"epochs": 3, "batch_size": 64, "optimizer": {"lr": 0.002}},
    }
)

print(f"run folder: {run.path}")
print(f"test accuracy: {run.summary['accuracy']:.3f}")
print(f"sent: {run.summary['bytes_sent']:,} bytes in {run.summary['rounds']} rounds")
for name, party in run.summary["parties"].items():
    print(f"  {name} ({party['role']}): {party['messages']} messages, {party['parameters']:,} parameters")
print(f"report: {run.report()}")
