"""VFedCD's protocol as its paper prints it, algorithms 1 to 6, to be measured and attacked: simulations only."""
