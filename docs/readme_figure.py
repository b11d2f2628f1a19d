"""Draw the README's figure again: `python docs/readme_figure.py`."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

import mksknn  # noqa: E402

data = mksknn.datasets.load_pima()
X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
best = mksknn.select_k(X, data.y)
ax = mksknn.plot_curve(mksknn.evidence_curve(X, data.y), selection=best, label="evidence of k")
ax.figure.set_size_inches(6.4, 3.2)
ax.figure.savefig(DOCS / "_static" / "evidence.png", dpi=100)
