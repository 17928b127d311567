"""Arrays in, indices and a certificate out; knows no models (floor 0)."""
