"""A plan replayed action by action: when each runs, what waits, what memory it takes, and what a measured run says."""
