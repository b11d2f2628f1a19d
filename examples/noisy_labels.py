"""Wrong labels: more of them call for a larger k, and probabilities point at the suspects.

python examples/noisy_labels.py [--out FOLDER] [--small]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import mksknn


def moons(n, rng):
    """Two half circles that reach into each other."""
    y = np.arange(n) % 2
    angle = np.pi * rng.uniform(size=n)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X[y == 1] = [1.0, 0.4] - X[y == 1]
    return X + 0.12 * rng.normal(size=(n, 2)), y


def own_probability(X, y, folds=10):
    """The probability of each point's own label, from a model that has not seen the point."""
    fold = np.arange(len(y)) % folds
    own = np.empty(len(y))
    for f in range(folds):
        inside, outside = fold != f, fold == f
        best = mksknn.select_k(X[inside], y[inside])
        found = mksknn.predict(X[inside], y[inside], X[outside], best)
        own[outside] = found.probability[np.arange(outside.sum()), y[outside]]
    return own


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="fewer points")
    options = parser.parse_args()

    rng = np.random.default_rng(11)
    n = 120 if options.small else 400
    X, truth = moons(n, rng)
    X_test, y_test = moons(2_000, rng)
    order = rng.permutation(n)

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.0), layout="constrained")
    print(f"{n} points of two classes; errors on 2000 new points with clean labels")
    print("  wrong labels   k by evidence  error   k by leave-one-out  error   error at k = 1")
    for share in (0.0, 0.1, 0.2, 0.3):
        y = truth.copy()
        flipped = order[: round(share * n)]
        y[flipped] = 1 - y[flipped]
        best = mksknn.select_k(X, y)
        loo = mksknn.select_k(X, y, graph="knn", criterion="loo")
        errors = [
            np.mean(mksknn.predict(X, y, X_test, model, k=k, graph=graph).label != y_test)
            for model, k, graph in ((best, None, None), (loo, None, None), (None, 1, "knn"))
        ]
        print(
            f"  {share:12.0%}   {best.k:13}  {errors[0]:5.1%}   {loo.k:18}  {errors[1]:5.1%}   "
            f"{errors[2]:14.1%}" + ("   ratio at a bound" if best.at_bound else "")
        )
        curve = mksknn.evidence_curve(X, y, k_max=min(n - 1, 120))
        mksknn.plot_curve(curve, axes[0], label=f"{share:.0%} wrong: k = {best.k}", relative=True)
        if share == 0.2:
            show = X, y, best, flipped

    axes[0].set_ylim(-90.0, 5.0)  # clean labels rule out large k by hundreds of nats
    lines = [line for line in axes[0].lines if "wrong" in str(line.get_label())]
    axes[0].legend(
        handles=lines, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2
    )
    axes[0].set_title("the more wrong labels, the larger the best k")
    X, y, best, flipped = show
    own = own_probability(X, y)
    suspects = np.argsort(own)[: len(flipped)]
    hits = np.isin(suspects, flipped).sum()
    print(f"with 20% wrong, {hits} of the {len(flipped)} least probable labels are wrong ones")

    mksknn.plot_decision(X, y, best, ax=axes[1], resolution=60 if options.small else 140)
    axes[1].scatter(
        *X[suspects].T, s=60, facecolors="none", edgecolors="black", linewidths=0.8, label="suspect"
    )
    axes[1].legend(fontsize=8)
    axes[1].set_title(f"20% wrong labels, k = {best.k}")
    options.out.mkdir(parents=True, exist_ok=True)
    fig.savefig(options.out / "noisy_labels.png", dpi=110)
    print(f"Evidence and suspects: {options.out / 'noisy_labels.png'}")


if __name__ == "__main__":
    main()
