"""What a circuit does with a checked batch: passes, statistics, updates, recordings, gradients."""
