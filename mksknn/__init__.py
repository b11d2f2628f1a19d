"""Which k? Exact Bayesian answers for mutual and symmetric k-nearest neighbours.

The story, in the order of the files: `neighbors` ranks (`as_neighbors` takes lists found
elsewhere), `knn_graph` weighs, `log_evidence` scores one k and `evidence_curve` all of them,
`select_k` finds the best with a proof, `loo_curve` gives a second opinion, `posterior` weighs every
k, `learn_metric` asks which distance, `predict` turns one k or all of them into labels, means,
variances and probabilities, `prepare` does so for new points that come later, and `plot_curve`,
`plot_decision` and `plot_relevance` draw.
"""

from . import datasets
from ._config import show_config
from ._evidence import EvidenceCurve, evidence_curve, log_evidence
from ._graphs import knn_graph
from ._learning import learn_metric
from ._loo import LooCurve, loo_curve
from ._metrics import Metric
from ._neighbors import Neighbors, as_neighbors, neighbors
from ._plotting import plot_curve, plot_decision, plot_relevance
from ._posterior import Posterior, posterior
from ._prediction import Prediction, Predictor, load_predictor, predict, prepare
from ._selection import Selection, select_k
from ._sparse import selected_inverse
from ._version import __version__

__all__ = [
    "EvidenceCurve",
    "LooCurve",
    "Metric",
    "Neighbors",
    "Posterior",
    "Prediction",
    "Predictor",
    "Selection",
    "__version__",
    "as_neighbors",
    "datasets",
    "evidence_curve",
    "knn_graph",
    "learn_metric",
    "load_predictor",
    "log_evidence",
    "loo_curve",
    "neighbors",
    "plot_curve",
    "plot_decision",
    "plot_relevance",
    "posterior",
    "predict",
    "prepare",
    "select_k",
    "selected_inverse",
    "show_config",
]
