"""Train a model of one's own: a factory that gives an nn.Sequential, cut after its third unit."""

from torch import nn

import veracausa


def small_net(shape: tuple[int, ...], outputs: int, width: int = 32) -> nn.Sequential:
    """`shape` is what arrives at the first unit. The layer behind the cut is lazy: it sees several payloads joined."""
    return nn.Sequential(
        nn.Flatten(),
        nn.LazyLinear(width),
        nn.ReLU(),
        nn.LazyLinear(width),
        nn.ReLU(),
        nn.LazyLinear(outputs),
    )


if __name__ == "__main__":
    run = veracausa.train(
        {
            "name": "own-model",
            "data": {"name": "digits"},
            # package.module:factory, anything that Python can import; here, this file.
            "model": {"name": "own_model:small_net", "cut": 3, "args": {"width": 48}},
            "training": {"epochs": 3, "batch_size": 64},
        },
        # The job only names the code. That it may run is said here, by whoever starts it.
        allow_model="own_model:small_net",
    )
    print(f"test accuracy: {run.summary['accuracy']:.3f}")
