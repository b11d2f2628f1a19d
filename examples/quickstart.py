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


def report(name, found, truth):
    error = np.mean(found.label != truth)
    own = found.probability[np.arange(len(truth)), truth]
    with np.errstate(divide="ignore"):
        log_loss = -np.log(own).mean()
    print(f"    {name:40}  {error:5.1%}  {log_loss:8.3f}")


def study(name, data, ax, k_max):
    X, y, X_test, y_test = split(data)
    n = len(y)
    print(f"\n{name}: {n} patients to learn from, {len(y_test)} held out")

    print("  the best k, over all k, sigma0 and sigma2")
    print("    graph      by        k  log evidence  evaluated")
    chosen = {}
    for graph in ("mutual", "symmetric"):
        for criterion in ("evidence", "loo_log"):
            best = mksknn.select_k(X, y, graph=graph, criterion=criterion, k_max=k_max)
            chosen[graph, criterion] = best
            count = f"{len(best.evaluated):4} of {k_max or n - 1}"
            print(
                f"    {graph:9}  {criterion:8}  {best.k:3}  {best.log_evidence:12.2f}  {count}"
                + ("   at a bound" if best.at_bound else "")
            )

    print("  on the patients held out" + " " * 20 + "error  log loss")
    for (graph, criterion), best in chosen.items():
        found = mksknn.predict(X, y, X_test, best)
        report(f"{graph}, k = {best.k} by {criterion}", found, y_test)
    averaged = mksknn.posterior(X, y, k_max=k_max)
    found = mksknn.predict(X, y, X_test, averaged)
    low, high = averaged.interval
    report(f"symmetric, averaged over k = {low} to {high}", found, y_test)
    loo = mksknn.select_k(X, y, graph="knn", criterion="loo", k_max=k_max)
    found = mksknn.predict(X, y, X_test, loo)
    report(f"plain k-NN, k = {loo.k} by leave-one-out", found, y_test)

    for graph in ("mutual", "symmetric"):
        mksknn.plot_curve(mksknn.evidence_curve(X, y, graph=graph, k_max=k_max), ax, label=graph)
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
    print("\nat a bound: sigma2/sigma0 stopped at an end of its range; see docs/ties.md")
    print(f"The evidence of every k: {options.out / 'quickstart.png'}")


if __name__ == "__main__":
    main()
