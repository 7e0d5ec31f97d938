"""What an attack read and how good a graph is, as numbers: pure functions, a value a sample.

`images` and `lpips` compare pictures, `leakage` sets an attack beside the best blind guess, `advantage` says how sure
that is, and `success` counts rows that were read or recognised. `risk` and `jacobian` need no attack, `representations`
compares what is sent with rows and task, `graphs` compares causal graphs, and `cpdag` those that leave directions open.
"""
