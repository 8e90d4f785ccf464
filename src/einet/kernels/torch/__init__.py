"""The arithmetic in plain torch: any device, float32 and float64; one file a kind of layer."""
