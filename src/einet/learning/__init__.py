"""Learning: expected statistics, EM, gradients, and the loop around them."""
