"""The arithmetic under the layers."""
