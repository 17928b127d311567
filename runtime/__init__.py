"""Executes a plan with torch.distributed: what a plan says is proven by training, not by belief."""
