"""What is measured: one module for each implementation, loaded in the measuring process only."""
