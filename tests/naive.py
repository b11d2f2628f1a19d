"""The slow, literal oracle that the library is tested against.

Everything here is written from the paper's formulas and the design's definitions, one short
function per formula, with loops where loops are clearest. Nothing comes from mksknn. Names:

    D       n x n distances between training points
    W, L    integer edge weights and their Laplacian D - W, both without sigma0
    r       the ratio sigma2 / sigma0
    q, s    tr(Y' L Y) and |Y|^2
"""

import math

import mpmath
import numpy as np
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

RATIO_BOUNDS = (1e-6, 1e6)


# ---------------------------------------------------------------- distances and ranks


def distance(a, b, metric="euclidean"):
    """d(a, b), every sum accumulated in column order."""
    a = [float(v) for v in a]
    b = [float(v) for v in b]
    if metric == "euclidean":
        total = 0.0
        for u, v in zip(a, b, strict=True):
            total += (u - v) * (u - v)
        return math.sqrt(total)
    if metric == "manhattan":
        total = 0.0
        for u, v in zip(a, b, strict=True):
            total += abs(u - v)
        return total
    if metric == "chebyshev":
        return max(abs(u - v) for u, v in zip(a, b, strict=True))
    if metric == "cosine":
        dot = aa = bb = 0.0
        for u, v in zip(a, b, strict=True):
            dot += u * v
            aa += u * u
            bb += v * v
        return max(0.0, 1.0 - dot / (math.sqrt(aa) * math.sqrt(bb)))
    raise ValueError(f"metric {metric!r}")


def distance_matrix(X, metric="euclidean"):
    """D_ij = d(x_i, x_j); for "precomputed" X is D already. The diagonal is 0 and never used."""
    X = np.asarray(X, dtype=float)
    if metric == "precomputed":
        return X.copy()
    rows = X.tolist()
    D = np.zeros((len(rows), len(rows)))
    for i, a in enumerate(rows):
        for j in range(i):
            D[i, j] = D[j, i] = distance(a, rows[j], metric)
    return D


def cross_distances(X_new, X, metric="euclidean"):
    """d(x, x_i) for every new x (rows) and training x_i (columns)."""
    X_new = np.asarray(X_new, dtype=float)
    if metric == "precomputed":
        return X_new.copy()
    rows = np.asarray(X, dtype=float).tolist()
    out = np.zeros((len(X_new), len(rows)))
    for a, x in enumerate(X_new.tolist()):
        for i, b in enumerate(rows):
            out[a, i] = distance(x, b, metric)
    return out


def ranking(D, i):
    """The other points by (distance from i, index); i itself is left out by identity."""
    others = [j for j in range(len(D)) if j != i]
    return sorted(others, key=lambda j: (D[i, j], j))


def neighbors(X, k_max=None, metric="euclidean"):
    """The k_max nearest of every point by (distance, index): (indices, distances), n x k_max."""
    D = distance_matrix(X, metric)
    n = len(D)
    k_max = n - 1 if k_max is None else k_max
    indices = np.array([ranking(D, i)[:k_max] for i in range(n)], dtype=np.int64).reshape(n, k_max)
    return indices, np.take_along_axis(D, indices, axis=1)


def neighbor_matrix(D, k):
    """N_ij = [i ~k j]: j is among the k nearest of i."""
    N = np.zeros(D.shape, dtype=int)
    for i in range(len(D)):
        for j in ranking(D, i)[:k]:
            N[i, j] = 1
    return N


# ---------------------------------------------------------------- graphs


def combine(own, other, graph):
    """w from own = [x ~k x_i] and other = [x_i ~k x]: own, own * other, or own + other."""
    if graph == "knn":
        return own
    if graph == "mutual":
        return own * other
    if graph == "symmetric":
        return own + other
    raise ValueError(f"graph {graph!r}")


def weights(X, k, graph="mutual", metric="euclidean"):
    """W_k of the design's table, n x n integers; row i holds what x_i gets."""
    N = neighbor_matrix(distance_matrix(X, metric), k)
    return combine(N, N.T, graph)


def nested_weights(indices, k, graph="mutual"):
    """W_k from lists of the nearest in order (`neighbors`), which serve every k."""
    n = len(indices)
    N = np.zeros((n, n), dtype=int)
    for i in range(n):
        for j in indices[i, :k]:
            N[i, j] = 1
    return combine(N, N.T, graph)


def laplacian(W):
    """L = D - W with D the diagonal of the row sums."""
    return np.diag(W.sum(axis=1)).astype(float) - W


def n_components(W):
    """The number of connected components of the graph, which is the nullity of its Laplacian."""
    return connected_components(W != 0, directed=False)[0]


def spectrum(W):
    """Eigenvalues of L, ascending, the zero ones (one per component) set to exactly zero."""
    lam = np.linalg.eigvalsh(laplacian(W))
    lam[: n_components(W)] = 0.0
    return lam


# ---------------------------------------------------------------- a new point


def query_ranking(d):
    """Training points in the order of (distance from the new point, index)."""
    return sorted(range(len(d)), key=lambda i: (d[i], i))


def adopts(D, i, d_ix, k):
    """[x_i ~k x]: fewer than k other training points are at distance <= d(x_i, x) from x_i."""
    closer = sum(1 for j in range(len(D)) if j != i and D[i, j] <= d_ix)
    return closer < k


def query_rank(D, i, d_ix):
    """The rank, from 1, of the new point among x_i's neighbours: the least k that adopts it."""
    return 1 + sum(1 for j in range(len(D)) if j != i and D[i, j] <= d_ix)


def query_weights(D, d, k, graph):
    """w(x, x_i) for every i, from D and the distances d of the new point to the training points."""
    n = len(D)
    own = np.zeros(n, dtype=int)
    own[query_ranking(d)[:k]] = 1
    other = np.array([int(adopts(D, i, d[i], k)) for i in range(n)])
    return combine(own, other, graph)


# ---------------------------------------------------------------- targets


def resolve_task(y, task="auto"):
    """Floats are regression; integers, booleans, strings and objects are classes."""
    if task != "auto":
        return task
    return "regression" if np.asarray(y).dtype.kind == "f" else "classification"


def class_indices(y):
    """(sorted labels, index of each y_i among them)."""
    values = np.asarray(y).tolist()
    labels = sorted(set(values))
    return labels, np.array([labels.index(v) for v in values])


def one_hot(index, J):
    """Y_il = 1 if y_i = C_l, else 0."""
    Y = np.zeros((len(index), J))
    for i, c in enumerate(index):
        Y[i, c] = 1.0
    return Y


def columns(y):
    """Regression values as an n x outputs float matrix."""
    y = np.asarray(y, dtype=float)
    return y.reshape(len(y), -1)


def resolve_formulation(y, formulation="auto", task="auto"):
    """The formulation by name: "auto" is "binary" with two classes and "II" with more."""
    if resolve_task(y, task) == "regression":
        return "regression"
    if formulation == "auto":
        return "binary" if len(class_indices(y)[0]) == 2 else "II"
    return formulation


def targets(y, formulation="auto", task="auto", center=True):
    """(Y, m, constant) of the design's table; for "II" Y is U = onehot - 1/J, with J columns."""
    formulation = resolve_formulation(y, formulation, task)
    if formulation == "regression":
        Y = columns(y)
        if center:
            Y = Y - Y.mean(axis=0)
        return Y, Y.shape[1], 0.0
    labels, index = class_indices(y)
    n, J = len(index), len(labels)
    if formulation == "binary":
        return np.array([[-1.0], [1.0]])[index], 1, 0.0
    if formulation == "I":
        return one_hot(index, J), J, 0.0
    if formulation == "II":
        return one_hot(index, J) - 1.0 / J, J - 1, -0.5 * n * math.log(J)
    raise ValueError(f"formulation {formulation!r}")


# ---------------------------------------------------------------- evidence at given sigmas


def normal_log_density(y, C):
    """log N(y; 0, C) from the covariance C."""
    sign, logdet = np.linalg.slogdet(C)
    assert sign > 0
    return -0.5 * logdet - 0.5 * y @ np.linalg.solve(C, y) - 0.5 * len(y) * math.log(2 * math.pi)


def log_evidence_from_graph(W, Y, m, constant, sigma0, sigma2):
    """m/2 log|P| - tr(Y' P Y)/2 - mn/2 log 2pi + constant, P = sigma0 L + sigma2 I."""
    n = len(W)
    P = sigma0 * laplacian(W) + sigma2 * np.eye(n)
    sign, logdet = np.linalg.slogdet(P)
    assert sign > 0
    quadratic = np.trace(Y.T @ P @ Y)
    return 0.5 * m * logdet - 0.5 * quadratic - 0.5 * m * n * math.log(2 * math.pi) + constant


def log_evidence(
    X,
    y,
    k,
    sigma0,
    sigma2,
    graph="symmetric",
    formulation="auto",
    task="auto",
    center=True,
    metric="euclidean",
):
    """Log evidence of design section 1 by a dense determinant of P."""
    Y, m, constant = targets(y, formulation, task, center)
    W = weights(X, k, graph, metric)
    return log_evidence_from_graph(W, Y, m, constant, sigma0, sigma2)


def log_evidence_literal_I(X, y, k, sigma0, sigma2, graph="symmetric", metric="euclidean"):
    """Formulation I from its Jn x Jn covariance, Cov(f_i^j, f_k^l) = delta(j,l) c(x_i, x_k)."""
    labels, index = class_indices(y)
    n, J = len(index), len(labels)
    c = np.linalg.inv(sigma0 * laplacian(weights(X, k, graph, metric)) + sigma2 * np.eye(n))
    C = np.zeros((J * n, J * n))
    for j in range(J):
        C[j * n : (j + 1) * n, j * n : (j + 1) * n] = c
    return normal_log_density(one_hot(index, J).T.ravel(), C)


def difference_names(index, J):
    """The (i, j) of every difference g_i^{y_i, j}, j != y_i, in the paper's order."""
    return [(i, j) for i in range(len(index)) for j in range(J) if j != index[i]]


def difference_covariance(c, index, J):
    """Cov(g_i^{y_i,j}, g_k^{y_k,l}) = (d(y_i,y_k) - d(y_i,l) - d(y_k,j) + d(j,l)) c(x_i, x_k)."""
    names = difference_names(index, J)
    C = np.zeros((len(names), len(names)))
    for a, (i, j) in enumerate(names):
        for b, (h, g) in enumerate(names):
            yi, yh = index[i], index[h]
            factor = int(yi == yh) - int(yi == g) - int(yh == j) + int(j == g)
            C[a, b] = factor * c[i, h]
    return C


def log_evidence_literal_II(X, y, k, sigma0, sigma2, graph="symmetric", metric="euclidean"):
    """Formulation II from its (J-1)n x (J-1)n covariance of differences, the target all ones."""
    labels, index = class_indices(y)
    n, J = len(index), len(labels)
    c = np.linalg.inv(sigma0 * laplacian(weights(X, k, graph, metric)) + sigma2 * np.eye(n))
    C = difference_covariance(c, index, J)
    return normal_log_density(np.ones(len(C)), C)


def derivative(f, x):
    """f'(x) by the five-point central difference with step x/1000."""
    h = 1e-3 * x
    return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h)


def gradient(X, y, k, sigma0, sigma2, **options):
    """(d/d sigma0, d/d sigma2) of the log evidence by central differences."""
    by_sigma0 = derivative(lambda v: log_evidence(X, y, k, v, sigma2, **options), sigma0)
    by_sigma2 = derivative(lambda v: log_evidence(X, y, k, sigma0, v, **options), sigma2)
    return np.array([by_sigma0, by_sigma2])


def logdet(L, r):
    """log|L + r I| by dense LU; loses about eps max(L) / r near a singular L."""
    return np.linalg.slogdet(L + r * np.eye(len(L)))[1]


def logdet_mpmath(L, r, digits=50):
    """log|L + r I| by elimination in `digits` decimal digits, r taken as the exact double it is."""
    with mpmath.workdps(digits):
        A = mpmath.matrix(np.asarray(L, dtype=float).tolist())
        n = A.rows
        for i in range(n):
            A[i, i] += mpmath.mpf(float(r))
        total = mpmath.mpf(0)
        for p in range(n):
            total += mpmath.log(A[p, p])
            for i in range(p + 1, n):
                if A[i, p] != 0:
                    factor = A[i, p] / A[p, p]
                    for j in range(p + 1, n):
                        A[i, j] -= factor * A[p, j]
        return total


# ---------------------------------------------------------------- the best sigmas, the best k


def roughness(W, Y):
    """q = tr(Y' L Y) = sum over edges of w_ij |y_i - y_j|^2."""
    squares = np.sum((Y[:, None, :] - Y[None, :, :]) ** 2, axis=2)
    return float(np.sum(np.triu(W) * squares))


def profile(W, Y, m, constant, r):
    """Design section 2: the evidence at ratio r and its closed-form best sigma0."""
    n = len(W)
    q, s = roughness(W, Y), float(np.sum(Y**2))
    inner = n * math.log(m * n / (q + r * s)) + np.sum(np.log(spectrum(W) + r))
    return 0.5 * m * inner - 0.5 * m * n - 0.5 * m * n * math.log(2 * math.pi) + constant


def best_sigma0(W, Y, m, r):
    """sigma0* = m n / (q + r s)."""
    return m * len(W) / (roughness(W, Y) + r * float(np.sum(Y**2)))


def optimum_from_graph(W, Y, m, constant, ratio_bounds=RATIO_BOUNDS):
    """Maximum over (log sigma0, log r) by L-BFGS-B from starts three decades of r apart.

    |P| is the product of sigma0 lambda_i + sigma2 over the eigenvalues of L, whose null space is
    known exactly, so small r costs no digits. The closed form of sigma0 is not used.
    """
    n = len(W)
    lam = spectrum(W)
    q, s = roughness(W, Y), float(np.sum(Y**2))

    def negative(z):
        u, t = z  # log sigma0, log r
        sigma0, r = math.exp(u), math.exp(t)
        value = 0.5 * m * (n * u + np.sum(np.log(lam + r))) - 0.5 * sigma0 * (q + r * s)
        slope_u = 0.5 * m * n - 0.5 * sigma0 * (q + r * s)
        slope_t = 0.5 * m * np.sum(r / (lam + r)) - 0.5 * sigma0 * r * s
        return -value, -np.array([slope_u, slope_t])

    def climb(z, **options):
        u = -math.log((q + math.exp(z[1]) * s) / n)
        bounds = [(u - 50, u + 50), (low, high)]
        return minimize(negative, z, jac=True, method="L-BFGS-B", bounds=bounds, options=options)

    low, high = (math.log(b) for b in ratio_bounds)
    starts = np.linspace(low, high, max(2, round((high - low) / math.log(1000)) + 1))
    runs = [climb(np.array([-math.log((q + math.exp(t) * s) / n), t])) for t in starts]
    best = min(runs, key=lambda run: run.fun)
    for _ in range(2):  # a restart clears L-BFGS-B's memory, which polishes the last digits
        best = min(climb(best.x, ftol=1e-16, gtol=1e-11), best, key=lambda run: run.fun)
    value = -best.fun - 0.5 * m * n * math.log(2 * math.pi) + constant
    sigma0, r = math.exp(best.x[0]), math.exp(best.x[1])
    return value, sigma0, sigma0 * r


def optimum(
    X,
    y,
    k,
    graph="symmetric",
    formulation="auto",
    ratio_bounds=RATIO_BOUNDS,
    task="auto",
    center=True,
    metric="euclidean",
):
    """(log evidence, sigma0, sigma2) at the maximum over both sigmas, r within its bounds."""
    Y, m, constant = targets(y, formulation, task, center)
    return optimum_from_graph(weights(X, k, graph, metric), Y, m, constant, ratio_bounds)


def exact_optimum(W, Y, m, constant, ratio_bounds=RATIO_BOUNDS):
    """(evidence, sigma0, sigma2, at_bound) from the root of the profile's slope in log r."""
    lam, n = spectrum(W), len(W)
    q, s = roughness(W, Y), float(np.sum(Y**2))

    def slope(t):
        r = math.exp(t)
        return n * q / (q + r * s) - (lam / (lam + r)).sum()

    low, high = (math.log(b) for b in ratio_bounds)
    if slope(low) <= 0:
        r = ratio_bounds[0]
    elif q / s >= lam.mean() * (1 - 1e-12) or slope(high) >= 0:
        r = ratio_bounds[1]
    else:
        r = math.exp(brentq(slope, low, high, xtol=1e-15, rtol=1e-15))
    sigma0 = m * n / (q + r * s)
    return profile(W, Y, m, constant, r), sigma0, r * sigma0, r in ratio_bounds


def at_bound(sigma0, sigma2, ratio_bounds=RATIO_BOUNDS, tolerance=1e-3):
    """Whether log r is within `tolerance` of an end of its bounds."""
    t = math.log(sigma2 / sigma0)
    return min(t - math.log(ratio_bounds[0]), math.log(ratio_bounds[1]) - t) < tolerance


def all_ks(n, ks=None):
    """The given k, or 1..n-1."""
    return list(range(1, n)) if ks is None else list(ks)


def evidence_curve(X, y, ks=None, metric="euclidean", sigma0=None, sigma2=None, **options):
    """(k, log evidence, sigma0, sigma2) for every k, at given sigmas or at each k's optimum."""
    D = distance_matrix(X, metric)
    ks = all_ks(len(D), ks)
    rows = []
    for k in ks:
        if sigma0 is None:
            rows.append(optimum(D, y, k, metric="precomputed", **options))
        else:
            value = log_evidence(D, y, k, sigma0, sigma2, metric="precomputed", **options)
            rows.append((value, sigma0, sigma2))
    return np.array(ks), *np.array(rows).T


def best_k(X, y, ks=None, metric="euclidean", **options):
    """argmax over k of the log evidence, the smallest k among equals."""
    ks, value, _, _ = evidence_curve(X, y, ks, metric, **options)
    return int(ks[np.argmax(value)])


# ---------------------------------------------------------------- the bound of section 3


def effective_resistances(W, r):
    """(log|A|, T = tr A^-1, R_ij = B_ii + B_jj - 2 B_ij), A = L + r I the anchor, B = A^-1."""
    A = laplacian(W) + r * np.eye(len(W))
    inverse = np.linalg.inv(A)
    diagonal = np.diag(inverse)
    R = diagonal[:, None] + diagonal[None, :] - 2 * inverse
    return np.linalg.slogdet(A)[1], np.trace(inverse), R


def total_resistance(W, R):
    """rho = sum over edges of w_ij R_ij."""
    return float(np.sum(np.triu(W) * R))


def logdet_bound(W_anchor, r_anchor, W, r):
    """log|L_k + rI| <= log|A| + n log((rho_k + r T) / n)."""
    n = len(W)
    logdet_A, T, R = effective_resistances(W_anchor, r_anchor)
    return logdet_A + n * math.log((total_resistance(W, R) + r * T) / n)


def profile_bound(W_anchor, r_anchor, W, Y, m, constant, r):
    """profile_k(r) with log|L_k + rI| replaced by its bound from the anchor."""
    n = len(W)
    logdet_A, T, R = effective_resistances(W_anchor, r_anchor)
    ratio = (total_resistance(W, R) + r * T) / (roughness(W, Y) + r * float(np.sum(Y**2)))
    inner = n * math.log(m) + logdet_A + n * math.log(ratio)
    return 0.5 * m * inner - 0.5 * m * n - 0.5 * m * n * math.log(2 * math.pi) + constant


def evidence_bound(W_anchor, r_anchor, W, Y, m, constant, ratio_bounds=RATIO_BOUNDS):
    """best_k <= the larger of the profile's bounds at the two ends of r."""
    return max(profile_bound(W_anchor, r_anchor, W, Y, m, constant, r) for r in ratio_bounds)


# ---------------------------------------------------------------- votes and predictions


def vote(w, index, J):
    """V_l = sum of w_i over class l."""
    V = np.zeros(J)
    for w_i, c in zip(w, index, strict=True):
        V[c] += w_i
    return V


def tie_break(V, w, index, order, ties, slack=0.0):
    """The winning class index; `order` lists the candidates from near to far, `w` their weights.

    "lowest": the first of the top classes. "nearest": the class of the first point in `order` that
    has w > 0 and a top class; with no neighbours at all, the class of the first point.
    """
    top = [c for c in range(len(V)) if V[c] >= max(V) - slack]
    if ties == "lowest" or len(top) == 1:
        return top[0]
    if not np.any(np.asarray(w) > 0):
        return index[order[0]]
    return next(index[i] for i in order if w[i] > 0 and index[i] in top)


def class_probability(V, r, J):
    """(V_l + r/J) / (sum w + r); 1/J where there is neither a vote nor a ratio."""
    total = V.sum() + r
    return (V + r / J) / total if total > 0 else np.full(J, 1.0 / J)


def latent_mean(w, Y, r):
    """sum_i w_i Y_i / (sum_i w_i + r), 0 where the denominator is 0."""
    total = w.sum() + r
    return w @ Y / total if total > 0 else np.zeros(Y.shape[1])


def predict(
    X,
    y,
    X_new,
    k,
    graph="symmetric",
    sigma0=None,
    sigma2=None,
    ties="nearest",
    task="auto",
    center=True,
    metric="euclidean",
):
    """Votes, means and variances of new points; without sigmas the plain vote or average (r = 0).

    Regression with center=True adds the mean back, so a point without neighbours gets the mean.
    """
    D = distance_matrix(X, metric)
    d_new = cross_distances(X_new, X, metric)
    plain = sigma0 is None
    r = 0.0 if plain else sigma2 / sigma0
    W = np.array([query_weights(D, d, k, graph) for d in d_new]).reshape(len(d_new), len(D))
    out = {
        "label": None,
        "probability": None,
        "variance": None if plain else np.array([1 / (sigma0 * w.sum() + sigma2) for w in W]),
        "n_neighbors": np.array([int(np.sum(w > 0)) for w in W], dtype=int),
    }
    if resolve_task(y, task) == "regression":
        Y = columns(y)
        shift = Y.mean(axis=0) if center else np.zeros(Y.shape[1])
        mean = np.array([shift + latent_mean(w, Y - shift, r) for w in W])
        out["mean"] = mean.reshape((len(W), *np.shape(y)[1:]))
        return out
    labels, index = class_indices(y)
    J = len(labels)
    votes = [vote(w, index, J) for w in W]
    winners = [
        tie_break(V, w, index, query_ranking(d), ties)
        for V, w, d in zip(votes, W, d_new, strict=True)
    ]
    out["label"] = np.array([labels[c] for c in winners], dtype=np.asarray(y).dtype)
    out["probability"] = np.array([class_probability(V, r, J) for V in votes]).reshape(-1, J)
    out["mean"] = np.array([latent_mean(w, one_hot(index, J), r) for w in W]).reshape(-1, J)
    return out


# ---------------------------------------------------------------- leave-one-out


def loo_weights(X, k, graph="knn", metric="euclidean", literal=False):
    """Row i: the weights x_i gets when left out.

    literal=False, the contract: the rows of W, from the training ranks. literal=True: x_i is
    removed and put back as a query, last in ties. The two differ only where distances tie.
    """
    D = distance_matrix(X, metric)
    if not literal:
        return weights(D, k, graph, "precomputed")
    n = len(D)
    W = np.zeros((n, n), dtype=int)
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        W[i, rest] = query_weights(D[np.ix_(rest, rest)], D[i, rest], k, graph)
    return W


def loo_error(
    X,
    y,
    graph="knn",
    k=1,
    task="auto",
    center=True,
    metric="euclidean",
    literal=False,
):
    """Plain leave-one-out error: the rate of wrong votes (ties "nearest"), or mean squared error.

    Regression is the plain average of the neighbours' y. Without neighbours it predicts the mean of
    all y (of the others, if literal) with center=True, 0 without; with several outputs the squares
    are averaged over points and outputs.
    """
    D = distance_matrix(X, metric)
    n = len(D)
    W = loo_weights(D, k, graph, "precomputed", literal)
    if resolve_task(y, task) == "regression":
        Y = columns(y)
        squares = []
        for i in range(n):
            others = np.delete(Y, i, axis=0) if literal else Y
            shift = others.mean(axis=0) if center else np.zeros(Y.shape[1])
            squares.append((Y[i] - shift - latent_mean(W[i], Y - shift, 0.0)) ** 2)
        return float(np.mean(squares))
    labels, index = class_indices(y)
    wrong = 0
    for i in range(n):
        V = vote(W[i], index, len(labels))
        wrong += tie_break(V, W[i], index, ranking(D, i), "nearest") != index[i]
    return wrong / n


def loo_log_score_from_graph(W, y, r, task="auto", center=True):
    """S_k(r) of design section 4b; regression at its best sigma0, y centred by the full mean."""
    n = len(W)
    if resolve_task(y, task) == "regression":
        Y = targets(y, task="regression", center=center)[0]
        m = Y.shape[1]
        precision = W.sum(axis=1) + r
        residual = np.array([np.sum((Y[i] - latent_mean(W[i], Y, r)) ** 2) for i in range(n)])
        sigma0 = m * n / np.sum(precision * residual)
        score = 0.0
        for i in range(n):
            tau = sigma0 * precision[i]
            score += 0.5 * m * math.log(tau / (2 * math.pi)) - 0.5 * tau * residual[i]
        return score
    labels, index = class_indices(y)
    J = len(labels)
    score = 0.0
    for i in range(n):
        V = vote(W[i], index, J)
        score += math.log((V[index[i]] + r / J) / (V.sum() + r))
    return score


def loo_log_score(X, y, graph, k, r, task="auto", center=True, metric="euclidean"):
    """S_k(r) from the training ranks."""
    return loo_log_score_from_graph(weights(X, k, graph, metric), y, r, task, center)


def best_loo_log_score(
    X,
    y,
    graph,
    k,
    ratio_bounds=RATIO_BOUNDS,
    task="auto",
    center=True,
    metric="euclidean",
    points=401,
):
    """(max over r of S_k(r), that r): a grid in log r, then every local maximum polished."""
    W = weights(X, k, graph, metric)

    def score(t):
        return loo_log_score_from_graph(W, y, math.exp(t), task, center)

    grid = np.linspace(math.log(ratio_bounds[0]), math.log(ratio_bounds[1]), points)
    values = np.array([score(t) for t in grid])
    candidates = [(values[0], grid[0]), (values[-1], grid[-1])]
    for a in range(1, points - 1):
        if values[a] >= values[a - 1] and values[a] >= values[a + 1]:
            found = minimize_scalar(
                lambda t: -score(t),
                bounds=(grid[a - 1], grid[a + 1]),
                method="bounded",
                options={"xatol": 1e-10},
            )
            candidates += [(-found.fun, found.x), (values[a], grid[a])]
    value, t = max(candidates)
    return float(value), math.exp(t)


def loo_curve(X, y, graph="knn", ks=None, metric="euclidean", ratio_bounds=RATIO_BOUNDS, **options):
    """(k, error, log score, ratio) for every k, from the training ranks."""
    D = distance_matrix(X, metric)
    ks = all_ks(len(D), ks)
    error = [loo_error(D, y, graph, k, metric="precomputed", **options) for k in ks]
    best = [
        best_loo_log_score(D, y, graph, k, ratio_bounds, metric="precomputed", **options)
        for k in ks
    ]
    return np.array(ks), np.array(error), *np.array(best).T


# ---------------------------------------------------------------- the posterior over k


def ratio_nodes(ratio_bounds=RATIO_BOUNDS, panels=200, order=10):
    """Nodes and weights of composite Gauss-Legendre quadrature in t = log r."""
    x, w = np.polynomial.legendre.leggauss(order)
    edges = np.linspace(math.log(ratio_bounds[0]), math.log(ratio_bounds[1]), panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    return (middle + half * x).ravel(), (half * w).ravel()


def log_marginal_of_ratio(W, Y, m, constant, t):
    """log of the integral of p(y | sigma0, r) d sigma0 / sigma0, r = exp(t): a Gamma integral."""
    n = len(W)
    q, s = roughness(W, Y), float(np.sum(Y**2))
    r = np.exp(t)
    a, b = 0.5 * m * n, 0.5 * (q + r * s)
    lam = spectrum(W)
    logdets = np.array([np.sum(np.log(lam + v)) for v in r])
    gamma_integral = math.lgamma(a) - a * np.log(b)
    return 0.5 * m * logdets + gamma_integral - a * math.log(2 * math.pi) + constant


def log_marginal_brute(W, Y, m, constant, ratio_bounds=RATIO_BOUNDS, panels=100, order=6):
    """log p(y | k) by two-dimensional quadrature over (log sigma0, log r).

    The prior is d sigma0 / sigma0 with no constant, and r log-uniform on its bounds, normalised.
    Trapezoids in log sigma0 (both tails vanish) times Gauss-Legendre panels in log r.
    """
    n = len(W)
    lam = spectrum(W)
    q, s = roughness(W, Y), float(np.sum(Y**2))
    t, weight = ratio_nodes(ratio_bounds, panels, order)
    u = np.linspace(-60.0, 60.0, 4001)
    rows = []
    for t_a in t:
        r = math.exp(t_a)
        log_p = 0.5 * m * (n * u + np.sum(np.log(lam + r))) - 0.5 * np.exp(u) * (q + r * s)
        assert max(log_p[0], log_p[-1]) < log_p.max() - 50  # the window holds all the mass
        rows.append(logsumexp(log_p) + math.log(u[1] - u[0]))
    integral = logsumexp(np.array(rows), b=weight)
    width = math.log(ratio_bounds[1] / ratio_bounds[0])
    return integral - math.log(width) - 0.5 * m * n * math.log(2 * math.pi) + constant


def log_marginal(W, Y, m, constant, ratio_bounds=RATIO_BOUNDS):
    """log p(y | k) by quadrature in log r, sigma0 integrated out; the prior of the brute one."""
    t, weight = ratio_nodes(ratio_bounds)
    width = math.log(ratio_bounds[1] / ratio_bounds[0])
    values = log_marginal_of_ratio(W, Y, m, constant, t)
    return logsumexp(values, b=weight) - math.log(width)


def posterior(
    X,
    y,
    ks=None,
    graph="symmetric",
    formulation="auto",
    task="auto",
    center=True,
    ratio_bounds=RATIO_BOUNDS,
    metric="euclidean",
    brute=True,
):
    """(k, p(k | y), log p(y | k)) with k uniform, by two-dimensional quadrature if brute."""
    D = distance_matrix(X, metric)
    Y, m, constant = targets(y, formulation, task, center)
    ks = all_ks(len(D), ks)
    integrate = log_marginal_brute if brute else log_marginal
    logs = np.array(
        [integrate(weights(D, k, graph, "precomputed"), Y, m, constant, ratio_bounds) for k in ks]
    )
    return np.array(ks), np.exp(logs - logsumexp(logs)), logs


def metropolis(
    X,
    y,
    steps=5000,
    seed=0,
    ks=None,
    graph="symmetric",
    formulation="auto",
    task="auto",
    center=True,
    ratio_bounds=RATIO_BOUNDS,
    metric="euclidean",
    scale=0.4,
):
    """Random-walk Metropolis samples of (k, log sigma0, log r) from the posterior, steps x 3.

    One sweep proposes a move of k alone (any other of the ks, or a step of 1), then one of
    (log sigma0, log r) along the ridge of constant sigma2, then one off it.
    """
    D = distance_matrix(X, metric)
    Y, m, _ = targets(y, formulation, task, center)
    ks = all_ks(len(D), ks)
    graphs = [weights(D, k, graph, "precomputed") for k in ks]
    lams = [spectrum(W) for W in graphs]
    qs = [roughness(W, Y) for W in graphs]
    n, s = len(D), float(np.sum(Y**2))
    low, high = (math.log(b) for b in ratio_bounds)
    rng = np.random.default_rng(seed)

    def log_density(a, u, t):
        if not (0 <= a < len(ks) and low <= t <= high):
            return -math.inf
        r = math.exp(t)
        logdet_P = n * u + np.sum(np.log(lams[a] + r))
        return 0.5 * m * logdet_P - 0.5 * math.exp(u) * (qs[a] + r * s)

    def step(state, value, proposal):
        new = log_density(*proposal)
        return (proposal, new) if math.log(rng.random()) < new - value else (state, value)

    state = (0, math.log(m * n / (qs[0] + s)), min(max(0.0, low), high))
    value = log_density(*state)
    samples = np.empty((steps, 3))
    for b in range(steps):
        a, u, t = state
        jump = int(rng.integers(len(ks))) if rng.random() < 0.5 else a + int(rng.choice([-1, 1]))
        state, value = step(state, value, (jump, u, t))
        a, u, t = state
        z = 3 * scale * rng.standard_normal()
        state, value = step(state, value, (a, u - z, t + z))
        a, u, t = state
        du, dt = scale * rng.standard_normal(2)
        state, value = step(state, value, (a, u + du, t + dt))
        samples[b] = ks[state[0]], state[1], state[2]
    return samples


# ---------------------------------------------------------------- averaged predictions


def mixture_predict(X, y, X_new, parts, graph, ties, task, center, metric):
    """Average over parts (k, r, weight, E[1/sigma0]), arrays over r; all weights sum to 1.

    variance = E[1 / (sigma0 (sum w + r))] + Var[mean], one column per output (per class), because
    the second term differs between outputs; `within` and `between` hold the two terms. Label: the
    class of highest average probability; classes within 1e-12 of it tie, and "nearest" takes the
    nearest training point of a tied class with w > 0 in some part of positive weight.
    `difference_variance` (two classes): the same sum for mean_2 - mean_1, the binary latent output.
    """
    D = distance_matrix(X, metric)
    d_new = cross_distances(X_new, X, metric)
    regression = resolve_task(y, task) == "regression"
    labels, index = (None, None) if regression else class_indices(y)
    Y = columns(y) if regression else one_hot(index, len(labels))
    shift = Y.mean(axis=0) if regression and center else np.zeros(Y.shape[1])
    n_new, J = len(d_new), Y.shape[1]
    mean, between, probability = np.zeros((3, n_new, J))
    within, difference = np.zeros((2, n_new))
    winners = []
    for a, d in enumerate(d_new):
        touched = np.zeros(len(D))
        pairs = []
        for k, r, weight, inverse_sigma0 in parts:
            w = query_weights(D, d, k, graph)
            total = w.sum() + r
            mu = shift + (w @ (Y - shift)) / total[:, None]
            pairs.append((weight, mu))
            probability[a] += weight @ (mu + (r / J / total)[:, None])
            within[a] += weight @ (inverse_sigma0 / total)
            touched += w * np.any(weight > 0)
        mean[a] = sum(weight @ mu for weight, mu in pairs)
        between[a] = sum(weight @ (mu - mean[a]) ** 2 for weight, mu in pairs)
        gap = mean[a, -1] - mean[a, 0]
        difference[a] = sum(weight @ (mu[:, -1] - mu[:, 0] - gap) ** 2 for weight, mu in pairs)
        if not regression:
            order = query_ranking(d)
            winners.append(tie_break(probability[a], touched, index, order, ties, slack=1e-12))
    out = {"label": None, "probability": None, "within": within, "between": between}
    out["mean"] = mean
    out["variance"] = within[:, None] + between
    if regression:
        for name in ("mean", "variance", "between"):
            out[name] = out[name].reshape((n_new, *np.shape(y)[1:]))
    else:
        out["label"] = np.array([labels[c] for c in winners], dtype=np.asarray(y).dtype)
        out["probability"] = probability
        out["difference_variance"] = within + difference if J == 2 else None
    return out


def averaged_predict(
    X,
    y,
    X_new,
    ks=None,
    graph="symmetric",
    formulation="auto",
    ties="nearest",
    task="auto",
    center=True,
    ratio_bounds=RATIO_BOUNDS,
    metric="euclidean",
    panels=60,
    order=6,
):
    """Predictions averaged over p(k, r | y), E[1/sigma0 | k, r, y] = (q + r s) / (m n - 2)."""
    D = distance_matrix(X, metric)
    n = len(D)
    Y, m, constant = targets(y, formulation, task, center)
    s = float(np.sum(Y**2))
    t, weight = ratio_nodes(ratio_bounds, panels, order)
    parts, logs = [], []
    for k in all_ks(n, ks):
        W = weights(D, k, graph, "precomputed")
        logs.append(log_marginal_of_ratio(W, Y, m, constant, t) + np.log(weight))
        parts.append((k, np.exp(t), (roughness(W, Y) + np.exp(t) * s) / (m * n - 2)))
    total = logsumexp(np.array(logs))
    parts = [
        (k, r, np.exp(log_p - total), inverse)
        for (k, r, inverse), log_p in zip(parts, logs, strict=True)
    ]
    return mixture_predict(X, y, X_new, parts, graph, ties, task, center, metric)


def loo_log_weights(X, y, ks=None, graph="symmetric", metric="euclidean", **options):
    """(k, weight, r): weights over k proportional to exp(max over r of S_k(r)), and each k's r."""
    D = distance_matrix(X, metric)
    ks = all_ks(len(D), ks)
    best = [best_loo_log_score(D, y, graph, k, metric="precomputed", **options) for k in ks]
    scores, ratios = np.array(best).T
    return np.array(ks), np.exp(scores - logsumexp(scores)), ratios


def averaged_predict_loo(
    X,
    y,
    X_new,
    ks=None,
    graph="symmetric",
    formulation="auto",
    ties="nearest",
    task="auto",
    center=True,
    ratio_bounds=RATIO_BOUNDS,
    metric="euclidean",
):
    """Predictions averaged with loo_log weights, each k at its own r and sigma0 = mn/(q + rs)."""
    options = {"ratio_bounds": ratio_bounds, "task": task, "center": center, "metric": metric}
    Y, m, _ = targets(y, formulation, task, center)
    parts = []
    for k, weight, r in zip(*loo_log_weights(X, y, ks, graph, **options), strict=True):
        sigma0 = best_sigma0(weights(X, k, graph, metric), Y, m, r)
        parts.append((k, np.array([r]), np.array([weight]), np.array([1 / sigma0])))
    return mixture_predict(X, y, X_new, parts, graph, ties, task, center, metric)
