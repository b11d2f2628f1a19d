"""Regression with error bars: two graphs, a gap in the data, and how often the bars hold.

python examples/regression.py [--out FOLDER] [--small]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import mksknn

NOISE = 0.15


def curve(x):
    return np.sin(2.0 * x) + 0.4 * x


def sample(n, rng):
    """Noisy values of a curve, with a gap between x = 2.2 and x = 3.4."""
    x = rng.uniform(-3.0, 5.0, 3 * n)
    x = x[(x < 2.2) | (x > 3.4)][:n]
    return x[:, None], curve(x) + NOISE * rng.normal(size=n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="fewer points")
    options = parser.parse_args()

    rng = np.random.default_rng(7)
    n = 60 if options.small else 160
    X, y = sample(n, rng)
    X_test, y_test = sample(1_000, rng)
    x_grid = np.linspace(-3.3, 5.3, 400)[:, None]

    print(f"{n} noisy values of a curve; the noise has standard deviation {NOISE}")
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
    for ax, graph in zip(axes, ("symmetric", "mutual")):
        best = mksknn.select_k(X, y, graph=graph)
        found = mksknn.predict(X, y, X_test, best)
        deviation = np.sqrt(found.variance)
        inside = np.mean(np.abs(y_test - found.mean) < 1.96 * deviation)
        error = np.sqrt(np.mean((y_test - found.mean) ** 2))
        print(f"  {graph}: k = {best.k}, proven best by {len(best.evaluated)} evaluations")
        print(
            f"    on 1000 new points: root mean squared error {error:.3f}, typical bar "
            f"{np.median(deviation):.3f}, {inside:.1%} within 1.96 bars"
        )

        found = mksknn.predict(X, y, x_grid, best)
        bar = 1.96 * np.sqrt(found.variance)
        x = x_grid[:, 0]
        low, high = found.mean - bar, found.mean + bar
        ax.fill_between(x, low, high, color="C0", alpha=0.2, linewidth=0, label="95% bar")
        ax.plot(x, found.mean, color="C0", linewidth=1.3, label="mean")
        ax.plot(x, curve(x), color="0.3", linestyle=":", linewidth=1.2, label="truth")
        ax.plot(X[:, 0], y, ".", color="C1", markersize=5, label="data")
        ax.set_title(f"{graph}, k = {best.k}")
        ax.set_xlabel("x")
        ax.set_ylim(-3.0, 4.6)  # the bar of a point without mutual neighbours goes far beyond
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("y")
    axes[0].legend(frameon=False, loc="upper left", ncols=2)

    options.out.mkdir(parents=True, exist_ok=True)
    fig.savefig(options.out / "regression.png", dpi=110)
    print(f"Means and bars: {options.out / 'regression.png'}")


if __name__ == "__main__":
    main()
