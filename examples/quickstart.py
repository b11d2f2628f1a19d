"""Choose k on two medical data sets, look at the evidence, predict patients that were held out.

python examples/quickstart.py [--out FOLDER] [--small]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import mksknn
from mksknn import datasets


def split(data):
    """Every fifth row for testing; features scaled by the mean and deviation of the others."""
    test = np.arange(len(data.y)) % 5 == 4
    mean, deviation = data.X[~test].mean(axis=0), data.X[~test].std(axis=0)
    X = (data.X - mean) / deviation
    return X[~test], data.y[~test], X[test], data.y[test]


def score(found, truth):
    """The share of wrong labels and the mean of -log(probability of the true label)."""
    own = found.probability[np.arange(len(truth)), truth]
    with np.errstate(divide="ignore"):
        return np.mean(found.label != truth), -np.log(own).mean()


def study(name, data, ax, k_max):
    X, y, X_test, y_test = split(data)
    options = {"k_max": k_max}
    print(f"\n{name}: {len(y)} patients to learn from, {len(y_test)} held out")
    print(f"  {'by':24} {'graph':10} {'k':>8}  {'k evaluated':>12}  {'error':>6}  {'log-loss':>8}")

    def row(by, model, k, evaluated="", note=""):
        error, log_loss = score(mksknn.predict(X, y, X_test, model), y_test)
        print(f"  {by:24} {model.graph:10} {k:>8}  {evaluated:>12}", end="")
        print(f"  {error:6.1%}  {log_loss:8.3f}{note}")

    for graph in ("symmetric", "mutual"):
        best = mksknn.select_k(X, y, graph=graph, **options)
        evaluated = f"{len(best.evaluated)} of {k_max or len(y) - 1}"
        row("evidence", best, best.k, evaluated, "  no maximum (*)" if best.at_bound else "")
    averaged = mksknn.posterior(X, y, **options)
    low, high = averaged.interval
    row("evidence, averaged", averaged, f"{low} to {high}" if low < high else f"{low}")
    scored = mksknn.select_k(X, y, criterion="loo_log", **options)
    row("leave-one-out log score", scored, scored.k)
    plain = mksknn.select_k(X, y, graph="knn", criterion="loo", **options)
    row("leave-one-out error", plain, plain.k)

    for graph in ("mutual", "symmetric"):
        mksknn.plot_curve(mksknn.evidence_curve(X, y, graph=graph, **options), ax, label=graph)
    ax.set_title(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="k up to 20 only")
    options = parser.parse_args()

    print(f"mksknn {mksknn.__version__}")
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    k_max = 20 if options.small else None
    study("Pima", datasets.load_pima(), axes[0], k_max)
    study("New Thyroid", datasets.load_new_thyroid(), axes[1], k_max)
    options.out.mkdir(parents=True, exist_ok=True)
    fig.savefig(options.out / "quickstart.png", dpi=110)
    print("\n(*) every edge joins equal labels, so the evidence grows without end: docs/ties.md")
    print(f"The evidence of every k: {options.out / 'quickstart.png'}")


if __name__ == "__main__":
    main()
