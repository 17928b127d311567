"""What can go wrong while a device is measured.

ProfilerError
    NoDeviceError       the device that was asked for is not there
    DeviceBusyError     somebody else computes on it
    HungError           a rank did not answer in time, a collective that hangs
    RankLostError       a rank ended
    JournalError        finished measurements that were kept cannot be read
"""

__all__ = ["DeviceBusyError", "HungError", "JournalError", "NoDeviceError", "ProfilerError", "RankLostError"]


class ProfilerError(Exception):
    """A device cannot be measured."""


class NoDeviceError(ProfilerError):
    """The device that was asked for is not there."""


class DeviceBusyError(ProfilerError):
    """Somebody else computes on the device."""


class HungError(ProfilerError):
    """A rank did not answer in time."""


class RankLostError(ProfilerError):
    """A rank ended before it was told to."""


class JournalError(ProfilerError):
    """Finished measurements that were kept cannot be read."""
