"""Logistic regression by Newton's method."""

import numpy as np

from miner.arrays import Bools, Floats

MAX_STEP, TOLERANCE = 2.0, 1e-8  # largest change of a parameter per iteration, and the change that ends them


def logistic_regression(inputs: Floats, labels: Bools | Floats, weights: Floats, penalties: Floats, max_steps: int = 100) -> Floats:
    """Inputs (n, p), labels or probabilities (n,) and weights (n,) -> parameters (p,), by Newton's method.

    They maximise the log-likelihood less half of their squares times `penalties` (p,).
    """
    parameters = np.zeros(len(penalties))
    for _ in range(max_steps):
        expected = 1 / (1 + np.exp(-np.clip(inputs @ parameters, -30, 30)))
        gradient = inputs.T @ (weights * (labels - expected)) - penalties * parameters
        information = (inputs * (weights * expected * (1 - expected))[:, None]).T @ inputs + np.diag(penalties)
        step = np.clip(np.linalg.solve(information, gradient), -MAX_STEP, MAX_STEP)
        parameters += step
        if np.abs(step).max() < TOLERANCE:
            break
    return parameters
