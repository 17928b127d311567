"""What every test runs under: property tests are the same on every run, and no slower machine makes one fail."""

from hypothesis import settings

settings.register_profile("meshplan", deadline=None, derandomize=True)
settings.load_profile("meshplan")
