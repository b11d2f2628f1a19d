"""Leave-one-out for every k against scikit-learn, R's `knn.cv`, and one ranking with NumPy.

The data are the first 1,000 of scikit-learn's digits (64 columns, 10 classes). Ours is timed whole:
the ranking, the errors of k = 1..999, and the log scores with the best ratio of each k. Of what
others do for one k after another (scikit-learn's ``cross_val_score(KNeighborsClassifier(k),
cv=LeaveOneOut())``, R's ``class::knn.cv``) a spread sample of k is timed and its mean scaled to
all (R's of small k, which favours it: it has no room for large ones; its one thread's time is
divided by our threads, as if processes shared the k). The third is what a careful person would
write: NumPy ranks once, and votes are cumulated for all k; it has the errors alone. Errors are
printed beside ours; they differ where votes or distances tie.
"""

from __future__ import annotations

import methods
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from timing import (
    THREADS,
    Cost,
    Missing,
    best_times,
    costs,
    in_threads,
    peak_memory,
    run,
    size,
    verdict,
)

import mksknn

N = size(1_000, 300, 60)
SAMPLE = size((1, 10, 50, 200, 500, 999), (1, 50, 299), (1, 59))
R_MOST = 400  # R keeps room for 1,000 ties, the first k points among them, and stops beyond
GOAL = 1_000


def every() -> dict:
    """All k, errors and log scores."""
    data = load_digits()
    X, y = np.ascontiguousarray(data.data[:N], dtype=float), data.target[:N]
    graphs = ("knn", "mutual", "symmetric")
    for graph in graphs:
        mksknn.loo_curve(X, y, graph=graph, k_max=20)  # compile
        mksknn.loo_curve(X, X[:, 20], graph=graph, k_max=20)

    one_ranking(X[:100], y[:100])
    calls = {graph: lambda graph=graph: mksknn.loo_curve(X, y, graph=graph) for graph in graphs}
    ours = costs(5, **calls, **{"one ranking": lambda: one_ranking(X, y)})
    ranked = mksknn.neighbors(X)
    parts = best_times(
        5,
        ranking=lambda: mksknn.neighbors(X),
        scores=lambda: mksknn.loo_curve(ranked, y),
    )
    print("mksknn, all k, seconds:", {name: round(one.seconds, 4) for name, one in ours.items()})
    print("of which, knn:", {name: round(t, 4) for name, t in parts.items()})

    curve = mksknn.loo_curve(X, y)
    # warm up the workers
    cross_val_score(KNeighborsClassifier(), X[:100], y[:100], cv=LeaveOneOut(), n_jobs=THREADS)
    every = []
    for k in SAMPLE:
        right: list[np.ndarray] = []

        def theirs(k=k, right=right) -> None:
            model = KNeighborsClassifier(k)
            right.append(cross_val_score(model, X, y, cv=LeaveOneOut(), n_jobs=THREADS))

        every.append(costs(1, theirs=theirs)["theirs"])
        print(
            f"k={k:4d}: scikit-learn {every[-1].seconds:6.2f} s, error {1 - right[0].mean():.3f}; "
            f"ours {curve.error[k - 1]:.3f}",
            flush=True,
        )
    scaled = float(np.mean([one.seconds for one in every])) * (N - 1)
    print(f"scikit-learn over all k, scaled from k = {SAMPLE}: {scaled:.0f} s")
    peers = {"sklearn (scaled)": Cost(scaled, every[-1].MB)}
    whole = peers["one ranking, errors only"] = ours.pop("one ranking")
    off = np.abs(one_ranking(X, y) - curve.error).mean()
    print(f"one ranking and NumPy: {whole.seconds:.3f} s, errors {off:.4f} off")
    few = [k for k in SAMPLE if k <= R_MOST]
    try:
        by_r = methods.knn_cv_of_r(X, y, few)[1]
        # R has one thread; as many processes as threads could share the k
        peers["R knn.cv (scaled)"] = Cost(by_r * (N - 1) / len(few) / THREADS)
    except Missing as why:
        print(f"SKIPPED: {why}")
    rows = []
    for graph in graphs:
        for peer, cost in peers.items():
            if graph != "knn" and "sklearn" not in peer:
                continue
            goal = {"at_least": GOAL} if peer == "sklearn (scaled)" else {}
            what = f"LOO and log score, all k, n={N:,}, {graph}: {peer} / mksknn"
            ratio = cost.seconds / ours[graph].seconds
            rows.append(verdict(what, ratio, sides=(ours[graph], cost), **goal))
    seconds = {name: one.seconds for name, one in (ours | peers).items()}
    return {"rows": rows, "seconds": seconds | parts}


def one_ranking(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The leave-one-out errors of every k, votes of one ranking cumulated."""
    return (winners(X, X, y, itself=True) != y[:, None]).mean(axis=0)


def winners(A: np.ndarray, X: np.ndarray, y: np.ndarray, itself: bool = False) -> np.ndarray:
    """The class that wins at each of A among its 1, 2, ... nearest of X, rows shared by threads.

    SciPy's distances and NumPy's sort take a third of the time of scikit-learn's brute search
    here, which is made for few neighbours.
    """
    own = np.eye(int(y.max()) + 1, dtype=np.int16)

    def work(rows: np.ndarray) -> np.ndarray:
        distances = cdist(A[rows], X)
        if itself:
            distances[np.arange(len(rows)), rows] = -1.0
        order = np.argsort(distances, axis=1)[:, int(itself) :]
        return np.cumsum(own[y[order]], axis=1).argmax(axis=2)

    return np.concatenate(in_threads(work, np.arange(len(A))))


def memory() -> list[dict]:
    """Beyond the ranking, errors and scores take little."""
    setup = f"from curve import digits; X, y = digits({N}); mksknn.loo_curve(X[:50], y[:50])"
    peak = peak_memory(setup, "mksknn.loo_curve(X, y)")
    what = f"peak memory of loo_curve, all k, n={N:,}, in n^2 doubles"
    return [verdict(what, peak * 2**20 / (8.0 * N * N)) | {"MB": peak}]


if __name__ == "__main__":
    run("loo", __doc__, {"every": every, "memory": memory})
