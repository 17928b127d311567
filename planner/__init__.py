"""What a plan is, and the search that makes one (floor 1)."""
