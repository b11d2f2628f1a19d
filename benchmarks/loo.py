"""Leave-one-out for every k against scikit-learn, which refits for every point and k.

The data are the first 1,000 of scikit-learn's digits (64 columns, 10 classes). Ours is timed whole:
the ranking, the errors of k = 1..999, and the log scores with the best ratio of each k. All k of
scikit-learn's ``cross_val_score(KNeighborsClassifier(k), cv=LeaveOneOut(), n_jobs=2)`` would take
about an hour, so a spread sample of k is timed and its mean is scaled to 999. Errors are printed
beside ours; they differ where votes tie, which scikit-learn gives to the lowest class.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from timing import best_times, peak_memory, run, size, verdict

import mksknn

N = size(1_000, 300, 60)
SAMPLE = size((1, 10, 50, 200, 500, 999), (1, 50, 299), (1, 59))
GOAL = 1_000


def every() -> dict:
    """All k, errors and log scores."""
    data = load_digits()
    X, y = np.ascontiguousarray(data.data[:N], dtype=float), data.target[:N]
    graphs = ("knn", "mutual", "symmetric")
    for graph in graphs:
        mksknn.loo_curve(X, y, graph=graph, k_max=20)  # compile
        mksknn.loo_curve(X, X[:, 20], graph=graph, k_max=20)

    ours = best_times(
        5, **{graph: lambda graph=graph: mksknn.loo_curve(X, y, graph=graph) for graph in graphs}
    )
    ranked = mksknn.neighbors(X)
    parts = best_times(
        5,
        ranking=lambda: mksknn.neighbors(X),
        scores=lambda: mksknn.loo_curve(ranked, y),
    )
    print("mksknn, all k, seconds:", {name: round(t, 4) for name, t in ours.items()})
    print("of which, knn:", {name: round(t, 4) for name, t in parts.items()})

    curve = mksknn.loo_curve(X, y)
    cross_val_score(KNeighborsClassifier(), X[:100], y[:100], cv=LeaveOneOut(), n_jobs=2)  # workers
    seconds = []
    for k in SAMPLE:
        start = time.perf_counter()
        accuracy = cross_val_score(KNeighborsClassifier(k), X, y, cv=LeaveOneOut(), n_jobs=2).mean()
        seconds.append(time.perf_counter() - start)
        print(
            f"k={k:4d}: scikit-learn {seconds[-1]:6.2f} s, error {1 - accuracy:.3f}; "
            f"ours {curve.error[k - 1]:.3f}",
            flush=True,
        )
    theirs = float(np.mean(seconds)) * (N - 1)
    print(f"scikit-learn over all k, scaled from k = {SAMPLE}: {theirs:.0f} s")
    rows = [
        verdict(
            f"LOO and log score, all k, n={N:,}, {graph}: sklearn (scaled) / mksknn",
            theirs / ours[graph],
            at_least=GOAL,
            seconds=(ours[graph], theirs),
        )
        for graph in graphs
    ]
    return {"rows": rows, "seconds": ours | parts | {"sklearn (scaled)": theirs}}


def memory() -> list[dict]:
    """Beyond the ranking, errors and scores take little."""
    setup = f"from curve import digits; X, y = digits({N}); mksknn.loo_curve(X[:50], y[:50])"
    peak = peak_memory(setup, "mksknn.loo_curve(X, y)")
    what = f"peak memory of loo_curve, all k, n={N:,}, in n^2 doubles"
    return [verdict(what, peak * 2**20 / (8.0 * N * N)) | {"MB": peak}]


if __name__ == "__main__":
    run("loo", __doc__, {"every": every, "memory": memory})
