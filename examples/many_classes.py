"""Many classes: the arms of a pinwheel. Formulation II costs the same for any number of classes.

python examples/many_classes.py [--out FOLDER] [--small]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import mksknn


def pinwheel(classes, each, rng):
    """Arms of a wheel, bent the more the farther out they are."""
    arm = np.repeat(np.arange(classes), each)
    radius = 0.4 + 1.6 * rng.uniform(size=classes * each)
    across = 0.25 * rng.normal(size=classes * each) / classes**0.5
    angle = 2.0 * np.pi * arm / classes + across / radius + 0.7 * radius
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), arm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="fewer points")
    options = parser.parse_args()

    each = 12 if options.small else 45
    classes = 8
    rng = np.random.default_rng(3)
    X, y = pinwheel(classes, each, rng)
    X_test, y_test = pinwheel(classes, 250, rng)
    n = len(y)
    print(f"{n} points of {classes} classes")
    print(f"formulation II as the paper defines it needs matrices of size {(classes - 1) * n};")
    print(f"collapsed, it needs nothing larger than {n}")

    for formulation in ("I", "II"):
        best = mksknn.select_k(X, y, formulation=formulation)
        error = np.mean(mksknn.predict(X, y, X_test, best).label != y_test)
        print(
            f"  formulation {formulation}: k = {best.k}, log evidence {best.log_evidence:.2f}, "
            f"{len(best.evaluated)} of {n - 1} k evaluated, error on new points {error:.1%}"
        )

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    curve = mksknn.evidence_curve(X, y, k_max=min(60, n - 1))
    mksknn.plot_curve(curve, axes[0], k_scale="log")
    mksknn.plot_decision(X, y, best, ax=axes[1], resolution=60 if options.small else 160)
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="class", frameon=False)
    axes[1].set_aspect("equal")
    axes[1].set_title(f"regions at k = {best.k}: the paler, the less certain", fontsize=10)

    options.out.mkdir(parents=True, exist_ok=True)
    fig.savefig(options.out / "many_classes.png", dpi=110)
    print(f"Evidence and regions: {options.out / 'many_classes.png'}")


if __name__ == "__main__":
    main()
