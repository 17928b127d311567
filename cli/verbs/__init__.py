"""Verbs of `plan`: names, flags and help. They import typer alone; what answers a verb is imported when it runs."""
