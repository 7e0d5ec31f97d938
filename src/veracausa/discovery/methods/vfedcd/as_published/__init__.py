"""What the paper does and the recommended profile does not: shares held by all parties, and Laplace noise."""
