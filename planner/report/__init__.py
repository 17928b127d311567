"""A plan document, rendered."""
