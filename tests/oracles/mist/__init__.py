"""A mirror of Mist's cost model (EuroSys '25, as its artifact codes it), to hold the solvers against its tuner.

`seconds.csv` and `l4.json` are distilled from the artifact by `scripts/distil_mist.py`.
"""
