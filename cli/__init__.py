"""The command line: parse, call, render (floor 3)."""
