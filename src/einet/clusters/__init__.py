"""Mixtures of Einets on one structure, each trained on one cluster of the rows."""
