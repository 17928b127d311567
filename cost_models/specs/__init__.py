"""Inputs of a plan, frozen and validated: model, cluster, workload, hardware profile and framework recipe."""
