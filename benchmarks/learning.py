"""Learning a distance against searching k by cross-validation, and how its cost grows.

python benchmarks/learning.py

How good the learned distance is: benchmarks/accuracy.py.
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import THREADS, costs, exponent, run, size, timed_apart, verdict

import mksknn
from mksknn._learning import _MOST


def correlated(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that three correlated columns tell apart; the other columns are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, 1] += 0.8 * X[:, 0]
    score = X[:, :3] @ rng.normal(size=(3, 3)) + 0.5 * rng.gumbel(size=(n, 3))
    X[:, -1] *= 100.0  # and on another scale
    return X, score.argmax(axis=1)


def grid() -> list[dict]:
    """GridSearchCV over k = 1..60 with 10 folds, all of it, in the same run: on the points as they
    are, and on the neighbourhood components that scikit-learn learns from all of them.
    """
    n, d, largest = size((1_000, 20, 60), (300, 10, 60), (60, 4, 20))
    X, y = correlated(n, d)
    mksknn.learn_metric(*correlated(100, 5))
    model, ks = KNeighborsClassifier(), list(range(1, largest + 1))
    search = GridSearchCV(model, {"n_neighbors": ks}, cv=10, n_jobs=THREADS)
    search.fit(X, y)

    def components() -> None:
        nca = NeighborhoodComponentsAnalysis(max_iter=50, random_state=0)
        search.fit(make_pipeline(StandardScaler(), nca).fit_transform(X, y), y)

    found = costs(
        size(3, 1, 1),
        ours=lambda: mksknn.learn_metric(X, y),
        plain=lambda: search.fit(X, y),
        components=components,
    )
    what = f"learn_metric, n={n:,} d={d} (from {min(n, _MOST)} of them)"
    peers = {
        "plain": (f"GridSearchCV over 1..{largest}", {"at_most": 1.0}),
        "components": (f"NCA, GridSearchCV over 1..{largest}", {}),
    }
    return [
        verdict(
            f"{what}: mksknn / {words}",
            found["ours"].seconds / found[peer].seconds,
            sides=(found["ours"], found[peer]),
            **goal,
        )
        for peer, (words, goal) in peers.items()
    ]


def growth() -> dict:
    """Time and memory with n and with d."""
    found = {}
    for what, cases in {
        # of more points it learns from no more of them
        "n": size([(n, 10) for n in (100, 200, _MOST)], [(100, 5), (200, 5)], [(40, 3), (60, 3)]),
        "d": size([(500, d) for d in (5, 10, 20, 40)], [(100, 4), (100, 8)], [(40, 3), (40, 4)]),
    }.items():
        rows = []
        for n, d in cases:
            setup = "from learning import correlated; mksknn.learn_metric(*correlated(100, 3))"
            setup += f"; X, y = correlated({n}, {d})"
            one = timed_apart(setup, "mksknn.learn_metric(X, y)")
            rows.append({"n": n, "d": d, **one})
            print(f"   {rows[-1]}", flush=True)
        power = exponent([row[what] for row in rows], [row["seconds"] for row in rows])
        print(f"learn_metric grows with {what}^{power:.2f}")
        found[what] = {"rows": rows, "exponent": power}
    return found


if __name__ == "__main__":
    run("learning", __doc__, {"grid": grid, "growth": growth})
