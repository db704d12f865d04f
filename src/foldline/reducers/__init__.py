"""Reducers: each proposes folds for a view and a need, and does nothing else."""
