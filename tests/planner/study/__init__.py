"""Studies: sweeps, scenarios planned beside each other, questions about clusters."""
