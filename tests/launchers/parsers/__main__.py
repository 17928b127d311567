"""`python tests/launchers/parsers NAME < BUNDLES`: what a launcher's own parser says to exports, a JSON line each.

Runs in an environment that has the launcher and not this project. A bundle has `files`, `env` and `world`; the answer
has `accepted`, and either what the parser found or the `error` that it refused with.
"""

import contextlib
import importlib
import io
import json
import sys


def answer(accept, bundle):
    """What the parser says to one bundle; whatever it raises or exits with is a refusal."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            return {"accepted": True, "found": accept(bundle)}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of a foreign parser is its answer
            lines = [line for line in told.getvalue().splitlines() if line.strip()]
            return {"accepted": False, "error": f"{type(error).__name__}: {error}", "told": lines[-5:]}


def main():
    """Answers every line of standard input."""
    with contextlib.redirect_stdout(sys.stderr):
        accept = importlib.import_module(f"of_{sys.argv[1]}").accept
    for line in sys.stdin:
        print(json.dumps(answer(accept, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
