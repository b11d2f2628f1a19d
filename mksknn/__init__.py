"""Which k? Exact Bayesian answers for mutual and symmetric k-nearest neighbours.

The story, in the order of the files: `neighbors` ranks, `knn_graph` weighs, `log_evidence` scores
one k and `evidence_curve` all of them, `select_k` finds the best with a proof, `loo_curve` gives a
second opinion, `posterior` weighs every k, `predict` turns one k or all of them into labels, means,
variances and probabilities, and `plot_curve` and `plot_decision` draw.
"""

from . import datasets
from ._config import show_config
from ._evidence import EvidenceCurve, evidence_curve, log_evidence
from ._graphs import knn_graph
from ._logdet import selected_inverse
from ._loo import LooCurve, loo_curve
from ._neighbors import Neighbors, neighbors
from ._plotting import plot_curve, plot_decision
from ._posterior import Posterior, posterior
from ._prediction import Prediction, predict
from ._selection import Selection, select_k
from ._version import __version__

__all__ = [
    "EvidenceCurve",
    "LooCurve",
    "Neighbors",
    "Posterior",
    "Prediction",
    "Selection",
    "__version__",
    "datasets",
    "evidence_curve",
    "knn_graph",
    "log_evidence",
    "loo_curve",
    "neighbors",
    "plot_curve",
    "plot_decision",
    "posterior",
    "predict",
    "select_k",
    "selected_inverse",
    "show_config",
]
