"""What a plan's numbers are made of: the cost model's own expressions, with the plan's values put in."""
