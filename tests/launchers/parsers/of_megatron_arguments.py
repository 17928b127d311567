"""What Megatron's parser takes: every argument's number of values and choices, whatever the bundle."""

import argparse
import enum

import megatron_wheel  # noqa: F401 - makes the wheel importable
from megatron.training.arguments import add_megatron_arguments


def accept(bundle):
    """The arguments by their names."""
    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False, add_help=False))
    return {name: _kind(action) for action in parser._actions for name in action.option_strings}


def _kind(action):
    values = 1 if action.nargs is None else action.nargs
    choices = action.choices and [each.name if isinstance(each, enum.Enum) else each for each in action.choices]
    return {"values": values, "choices": choices}
