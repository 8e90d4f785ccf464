"""Fused CUDA kernels in Triton; import its modules only where Triton is installed."""
