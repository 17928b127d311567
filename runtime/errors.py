"""What a run can meet. Each is one plain line that names the field or the rank, the value and what is allowed.

RuntimeFault                the run cannot start or go on
├── UnsupportedPlanError    the plan has something that this runtime does not honour; nothing was started
├── LaunchError             ranks or devices do not match the plan
├── DataError               the training data cannot be read, or are too short
├── WeightsError            the weights' folder does not hold the plan's model
├── TrainingError           a step went wrong: its loss or gradient norm is not finite
└── RankFailedError         a rank ended before the run did
"""


class RuntimeFault(Exception):
    """The run cannot start or go on."""


class UnsupportedPlanError(RuntimeFault):
    """The plan has something that this runtime does not honour; one line for each field."""


class LaunchError(RuntimeFault):
    """Ranks or devices do not match the plan."""


class DataError(RuntimeFault):
    """The training data cannot be read, or are too short."""


class WeightsError(RuntimeFault):
    """The weights' folder does not hold the plan's model."""


class TrainingError(RuntimeFault):
    """A step went wrong: its loss or gradient norm is not finite."""


class RankFailedError(RuntimeFault):
    """A rank ended before the run did."""
