"""Neighbours and graphs of the three bundled data sets: `python examples/quickstart.py`."""

import numpy as np
from scipy.sparse.csgraph import connected_components

import mksknn
from mksknn import datasets

K = 5


def standardize(X):
    """Columns with mean 0 and standard deviation 1, so that no unit of measurement dominates."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


def describe(name, data, X):
    print(f"\n{name}: {data!r}")

    nearest = mksknn.neighbors(X, K)
    i = int(nearest.distances[:, 0].argmax())
    listing = ", ".join(
        f"{j} ({d:.2f})" for j, d in zip(nearest.indices[i], nearest.distances[i], strict=True)
    )
    print(f"  loneliest point: {i}; its {K} nearest, with distances: {listing}")

    print(f"  graphs at k = {K}  edges  mean degree  isolated  components  edges within a class")
    for graph in ("mutual", "symmetric"):
        W = mksknn.knn_graph(X, K, graph=graph)
        i, j = W.nonzero()
        linked = np.bincount(i, minlength=len(X))
        components, _ = connected_components(W, directed=False)
        within = np.mean(data.y[i] == data.y[j])
        print(
            f"    {graph:12}  {len(i) // 2:5}  {W.sum() / len(X):11.2f}  {np.sum(linked == 0):8}"
            f"  {components:10}  {within:20.0%}"
        )


def main():
    print(f"mksknn {mksknn.__version__}")
    sinc = datasets.make_sinc3c()
    describe("Sinc3C", sinc, sinc.X)
    for name, load in [("Pima", datasets.load_pima), ("New Thyroid", datasets.load_new_thyroid)]:
        data = load()
        describe(name, data, standardize(data.X))


if __name__ == "__main__":
    main()
