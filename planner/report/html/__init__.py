"""Reports as pages: each one file that needs no network, made of a document and of nothing else."""
