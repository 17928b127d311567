"""Failures as people and programs meet them: one message and an exit code, never a traceback."""

import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from cli.output import print_json
from cost_models.specs.errors import SpecError
from planner.errors import DocumentError, InexpressibleError, InfeasibleError, Interrupted, PlannerError
from profiler.errors import DeviceBusyError, HungError, ProfilerError, RankLostError
from runtime.errors import RankFailedError, RuntimeFault, TrainingError, UnsupportedPlanError

DONE, INFEASIBLE, BAD_INPUT, INEXPRESSIBLE, LIMIT, INTERRUPTED = 0, 1, 2, 3, 4, 130

Failure = PlannerError | SpecError | RuntimeFault | ProfilerError


def answered(verb: Callable[[], int], as_json: bool) -> int:
    """The exit code of a verb; a failure is told on stderr, or on stdout as JSON. A reader that left is no failure."""
    try:
        code = verb()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit stays quiet
        return DONE
    except KeyboardInterrupt:
        return tell(Interrupted(), as_json)
    except (PlannerError, SpecError, RuntimeFault, ProfilerError) as error:
        return tell(error, as_json)
    return code


def tell(error: Failure, as_json: bool) -> int:
    """Prints a failure and returns its exit code."""
    kind, code = _kind_and_code(error)
    message = str(error)
    if isinstance(error, InfeasibleError) and error.remedies and not as_json:
        from cli.remedies import as_text

        message = f"{error}\n\n{as_text(error.remedies)}"
    return _print(kind, code, message, as_json, _details(error))


def tell_usage(error: typer.TyperException, as_json: bool) -> int:
    """Prints a wrong command line and returns its exit code."""
    return _print("usage", BAD_INPUT, f"{error.format_message()}\nTry 'plan --help'.", as_json, {})


def _details(error: Failure) -> dict[str, Any]:
    if isinstance(error, InfeasibleError):
        from cli.remedies import as_data

        return {"messages": list(error.messages), "changes": as_data(error.remedies)}
    if isinstance(error, InexpressibleError):
        refusals = [{"rule": each.id, "field": each.field, "message": each.message} for each in error.refusals]
        return {
            "launcher": error.launcher,
            "fields": sorted({each.field for each in error.refusals}),
            "refusals": refusals,
        }
    return {}


def _kind_and_code(error: Failure) -> tuple[str, int]:
    if isinstance(error, InfeasibleError):
        return "infeasible", INFEASIBLE
    if isinstance(error, InexpressibleError):
        return "inexpressible", INEXPRESSIBLE
    if isinstance(error, Interrupted):
        return "interrupted", INTERRUPTED
    if isinstance(error, UnsupportedPlanError):
        return "unsupported", INEXPRESSIBLE
    if isinstance(error, HungError | RankLostError | DeviceBusyError):
        return "measuring", INFEASIBLE
    if isinstance(error, TrainingError | RankFailedError):
        return "training", INFEASIBLE
    return "document" if isinstance(error, DocumentError) else "input", BAD_INPUT


def _print(kind: str, code: int, message: str, as_json: bool, details: dict[str, Any]) -> int:
    if as_json:
        print_json({"error": {"kind": kind, "message": message, "exit_code": code, **details}})
    else:
        print(f"plan: {message}", file=sys.stderr)
    return code
