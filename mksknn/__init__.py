"""Which k? Exact Bayesian answers for mutual and symmetric k-nearest neighbours."""

from . import datasets
from ._graphs import knn_graph
from ._loo import LooCurve, loo_curve
from ._neighbors import Neighbors, neighbors
from ._version import __version__
