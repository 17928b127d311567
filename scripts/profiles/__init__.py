"""Measurement files of public sources -> the tables of data/profiles."""
