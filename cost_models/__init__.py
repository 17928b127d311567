"""What a training configuration costs: specs in, seconds and bytes out (floor 0)."""
