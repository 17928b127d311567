"""Measures a device and its links at the shapes it is given; imports only what costs are made of, and torch."""
