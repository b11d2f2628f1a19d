"""mksknn as scikit-learn estimators: copy this file beside your code and import from it.

    from estimators import EvidenceKNNClassifier, EvidenceKNNRegressor

k is chosen inside `fit`, from the training data alone, so no grid search has to go around it. Both
classes pass `sklearn.utils.estimator_checks.check_estimator` (scikit-learn 1.6 or later).

python examples/estimators.py [--out FOLDER] [--small] compares them with scikit-learn's k-NN.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import mksknn


class _EvidenceKNN(BaseEstimator):
    """What the classifier and the regressor share.

    Parameters
    ----------
    graph : {"symmetric", "mutual", "auto", "knn"}
        Which neighbours count; "auto" lets the criterion choose between the first two, "knn" has
        leave-one-out criteria only.
    criterion : {"evidence", "loo", "loo_log"}
        By what k is chosen: the Bayesian evidence, the leave-one-out error or log score.
    average : bool
        Average over all k, each with its weight by the criterion ("evidence" or "loo_log"), instead
        of taking the best.
    k_max : int, optional
        The largest k to consider; by default all up to n - 1.
    metric : str or mksknn metric
        As `mksknn.select_k` takes it. "precomputed": X holds distances.

    Attributes
    ----------
    k_ : int
        The number of neighbours chosen (the most probable one with `average`).
    model_ : mksknn.Selection or mksknn.Posterior
        All that is known about the choice.
    """

    def __init__(
        self,
        graph="symmetric",
        criterion="evidence",
        average=False,
        k_max=None,
        metric="euclidean",
    ):
        self.graph = graph
        self.criterion = criterion
        self.average = average
        self.k_max = k_max
        self.metric = metric

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed()
        tags.input_tags.positive_only = self._precomputed()
        return tags

    def _precomputed(self):
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def _choose(self, X, y, task):
        """Choose k and get ready to predict; `y` are values or whole numbers for classes."""
        if self.k_max is not None:
            # a fold of a cross-validation may be smaller than what the caller had in mind
            k_max = min(self.k_max, len(X) - 1)
        else:
            k_max = None
        options = {"graph": self.graph, "task": task, "k_max": k_max, "metric": self.metric}
        if self.average:
            if self.criterion == "loo":
                raise ValueError(
                    "criterion must be 'evidence' or 'loo_log' with average; got 'loo'"
                )
            self.model_ = mksknn.posterior(X, y, weights=self.criterion, **options)
            self.k_ = self.model_.best_k
        else:
            self.model_ = mksknn.select_k(X, y, criterion=self.criterion, **options)
            self.k_ = self.model_.k
        self.predictor_ = mksknn.prepare(X, y, self.model_, task=task)
        return self

    def _predict(self, X):
        check_is_fitted(self)
        return self.predictor_(validate_data(self, X, reset=False, dtype=np.float64))


class EvidenceKNNClassifier(ClassifierMixin, _EvidenceKNN):
    """Mutual or symmetric k-nearest-neighbour classification, k chosen when it is fitted."""

    __doc__ += "\n" + _EvidenceKNN.__doc__.partition("\n")[2]

    def fit(self, X, y):
        """Choose k for these points and labels."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise ValueError(f"y must have at least 2 classes; got one class, {self.classes_[0]!r}")
        return self._choose(X, codes, "classification")

    def predict_proba(self, X):
        """The probability of each class, in the order of `classes_`."""
        return self._predict(X).probability

    def predict(self, X):
        """The most probable class; of equally probable ones the first, as scikit-learn has it."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]


class EvidenceKNNRegressor(RegressorMixin, _EvidenceKNN):
    """Mutual or symmetric k-nearest-neighbour regression, k chosen when it is fitted."""

    __doc__ += "\n" + _EvidenceKNN.__doc__.partition("\n")[2]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y):
        """Choose k for these points and values (one column, or several)."""
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_min_samples=2, multi_output=True, y_numeric=True
        )
        return self._choose(X, y.astype(np.float64), "regression")

    def predict(self, X, return_std=False):
        """The means, and with `return_std` the standard deviations of new observations."""
        found = self._predict(X)
        if not return_std:
            return found.mean
        if found.variance is None:
            raise ValueError("criterion 'loo' gives no deviations: take 'evidence' or 'loo_log'")
        return found.mean, np.sqrt(found.variance)


# -------------------------------------------------------------------------------------------------
# A comparison


def compare_classifiers(models, name, X, y, folds):
    """Print accuracy and log-loss by cross-validation; return the probabilities."""
    from sklearn.metrics import accuracy_score, log_loss
    from sklearn.model_selection import cross_val_predict

    found = {}
    for label, model in models.items():
        found[label] = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
        accuracy = accuracy_score(y, found[label].argmax(axis=1))
        print(f"  {name:12} {label:32} {accuracy:8.3f}  {log_loss(y, found[label]):8.3f}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="fewer folds")
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from sklearn.calibration import CalibrationDisplay
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    grid = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": range(1, 31)}, cv=5)
    models = {
        "scikit-learn's k-NN, k by CV": make_pipeline(StandardScaler(), grid),
        "EvidenceKNN": make_pipeline(StandardScaler(), EvidenceKNNClassifier()),
        "EvidenceKNN, averaged": make_pipeline(
            StandardScaler(), EvidenceKNNClassifier(criterion="loo_log", average=True)
        ),
    }
    folds = StratifiedKFold(3 if options.small else 10, shuffle=True, random_state=0)
    print(f"  {'set':12} {'model':32} accuracy  log-loss")
    pima, thyroid = mksknn.datasets.load_pima(), mksknn.datasets.load_new_thyroid()
    found = compare_classifiers(models, "Pima", pima.X, pima.y, folds)
    compare_classifiers(models, "New Thyroid", thyroid.X, thyroid.y, folds)

    fig, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    for label, probability in found.items():
        CalibrationDisplay.from_predictions(
            pima.y, probability[:, 1], n_bins=5, strategy="quantile", name=label, ax=ax
        )
    ax.set(xlabel="predicted probability of diabetes", ylabel="share that has it", title="Pima")
    ax.spines[["top", "right"]].set_visible(False)
    options.out.mkdir(parents=True, exist_ok=True)
    fig.savefig(options.out / "estimators.png", dpi=110)
    print(f"How far the probabilities can be trusted: {options.out / 'estimators.png'}")


if __name__ == "__main__":
    main()
