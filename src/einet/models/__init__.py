"""Models: one Einet, and mixtures of models."""
