"""Predictions for configurations that somebody ran: rows of a table in, seconds and bytes out, and how far off."""
