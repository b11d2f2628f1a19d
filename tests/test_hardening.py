"""What must not happen: hangs, interrupts not heard, answers that depend on the machine."""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import naive
import numpy as np
import pytest
import scipy.sparse

import mksknn
from mksknn import _graphs, _threads
from mksknn._cholmod import cholmod

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(17)
X = RNG.normal(size=(30, 3))
Y = X[:, 0] + 0.3 * RNG.normal(size=30)
EVIDENCE = [mksknn.select_k, mksknn.evidence_curve, mksknn.posterior]


# ---------------------------------------------------------------- y that does not vary

CONSTANTS = [0.1, 0.5, 1.0 / 3.0, -0.7, 1e10 / 3.0, 1e-30 / 7.0, 1e140 / 3.0, 1e-200, 0.0]


@pytest.mark.parametrize("value", CONSTANTS)
@pytest.mark.parametrize("n", [2, 3, 30, 29])
def test_a_constant_y_is_refused_however_its_mean_rounds(value, n):
    for call in (*EVIDENCE, mksknn.learn_metric):
        with pytest.raises(ValueError, match="y must vary"):
            call(X[:n], np.full(n, value))
    with pytest.raises(ValueError, match="y must vary"):
        mksknn.select_k(X[:n], np.full((n, 2), [value, 3.0 * value]))
    with pytest.raises(ValueError, match="y must not be constant"):
        mksknn.loo_curve(X[:n], np.full(n, value))


def test_a_constant_y_has_an_evidence_at_given_sigmas():
    found = mksknn.log_evidence(X, np.full(30, 0.1), 3, sigma0=2.0, sigma2=0.5)
    expected = naive.log_evidence(X, np.zeros(30), 3, 2.0, 0.5, center=False)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("call", EVIDENCE)
def test_one_constant_output_among_others_is_fine(call):
    """All outputs share sigma0, and the others keep it finite: a column of zeros, exactly."""
    both = call(X, np.column_stack([Y, np.full(30, 0.1)]), k_max=9)
    zeros = call(X, np.column_stack([Y - Y.mean(), np.zeros(30)]), k_max=9)
    name = "log_total" if call is mksknn.posterior else "log_evidence"
    np.testing.assert_allclose(getattr(both, name), getattr(zeros, name), rtol=1e-12)
    assert np.isfinite(getattr(both, name)).all()


def test_values_that_hardly_vary_are_centred_exactly():
    """Steps of one ulp around a number whose mean rounds: exact by shifting first."""
    steps = RNG.integers(0, 5, 30).astype(float)
    y = 1.0 + steps * np.spacing(1.0)
    found = mksknn.evidence_curve(X, y, k_max=5)
    expected = mksknn.evidence_curve(X, steps, k_max=5)
    shift = -30 * np.log(np.spacing(1.0))
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence + shift, rtol=1e-13)
    np.testing.assert_allclose(found.sigma2 / found.sigma0, expected.sigma2 / expected.sigma0)


# ---------------------------------------------------------------- distances that were rounded


def test_rounding_in_given_distances_is_forgiven():
    D = naive.distance_matrix(X, "euclidean")
    noisy = D * (1.0 + 1e-15 * RNG.normal(size=D.shape))
    noisy[0, 0] = noisy[3, 4] = noisy[4, 3] = -1e-17
    before = noisy.copy()
    found = mksknn.neighbors(noisy, metric="precomputed")
    exact = np.maximum(0.5 * (noisy + noisy.T), 0.0)
    expected = mksknn.neighbors(exact, metric="precomputed")
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)
    np.testing.assert_array_equal(noisy, before)
    new = mksknn.predict(noisy, Y, noisy[:5], k=3, metric="precomputed")
    plain = mksknn.predict(exact, Y, np.maximum(noisy[:5], 0.0), k=3, metric="precomputed")
    np.testing.assert_array_equal(new.mean, plain.mean)


def test_distances_of_scikit_learn_are_taken_as_they_come():
    pairwise = pytest.importorskip("sklearn.metrics").pairwise_distances
    for metric in ("euclidean", "cosine", "correlation", "braycurtis", "manhattan"):
        D = pairwise(np.abs(X) if metric == "braycurtis" else X, metric=metric)
        assert mksknn.select_k(D, Y, metric="precomputed").certified


def test_rounding_is_forgiven_whatever_comes_with_it():
    """A new point in the place of all but one: its own distances are all rounding."""
    D = np.zeros((5, 5))
    D[4, :4] = D[:4, 4] = 1.0
    new = np.full((1, 5), -1e-17)
    predictor = mksknn.prepare(D, Y[:5], k=2, metric="precomputed")
    np.testing.assert_array_equal(predictor(new).mean, predictor(np.zeros((1, 5))).mean)
    with pytest.raises(ValueError, match="X_new must hold distances >= 0; got -1e-09"):
        predictor(np.full((1, 5), -1e-9))


def test_rounding_in_lists_found_elsewhere_is_forgiven():
    exact = mksknn.neighbors(X, 5)
    distances = exact.distances.copy()
    distances[3, 0] = -1e-17
    distances[4, 2] = np.nextafter(distances[4, 1], 0.0)
    found = mksknn.as_neighbors(exact.indices, distances)
    assert found.distances[3, 0] == 0.0 and found.distances[4, 2] == distances[4, 1]
    with pytest.raises(ValueError, match="distances must be >= 0; got -1e-09"):
        mksknn.as_neighbors(exact.indices, np.where(distances == distances[3, 0], -1e-9, distances))
    with pytest.raises(ValueError, match="distances must not fall along a row"):
        mksknn.as_neighbors(exact.indices, 10.0 + distances * [1.0, 1.0, 1.0, 1.0, -1.0])


@pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is not installed")
def test_rounding_in_a_sparse_matrix_is_forgiven():
    """As in D^-1/2 L D^-1/2 of weights that are not 1, multiplied from one side first."""
    exact = naive.laplacian(naive.weights(X, 3, "symmetric")) + np.eye(30)
    i, j = np.argwhere(np.triu(exact, 1))[0]
    noisy = exact.copy()
    noisy[i, j] = np.nextafter(exact[i, j], 0.0)
    found = mksknn.selected_inverse(scipy.sparse.csc_array(noisy)).toarray()
    expected = mksknn.selected_inverse(scipy.sparse.csc_array(exact)).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    noisy[i, j] += 1e-9
    with pytest.raises(
        ValueError, match=rf"A must be symmetric.* A\[{i}, {j}\] = .* A\[{j}, {i}\]"
    ):
        mksknn.selected_inverse(scipy.sparse.csc_array(noisy))
    with pytest.raises(ValueError, match="A must hold .* 9007199254740993"):
        mksknn.selected_inverse(scipy.sparse.csc_array(np.diag([2**53 + 1, 3])))
    with pytest.raises(ValueError, match="A must have an inverse that fits in a float"):
        mksknn.selected_inverse(scipy.sparse.csc_array(1e-320 * np.eye(3)))


def test_more_than_rounding_is_refused():
    D = naive.distance_matrix(X, "euclidean")
    spoiled = D.copy()
    spoiled[2, 7] *= 1.0 + 1e-9
    with pytest.raises(ValueError, match=r"X must be symmetric .* X\[2, 7\] = .* X\[7, 2\] = "):
        mksknn.neighbors(spoiled, metric="precomputed")
    spoiled = D.copy()
    spoiled[2, 7] = spoiled[7, 2] = -1e-9
    with pytest.raises(ValueError, match="X must hold distances >= 0; got -1e-09"):
        mksknn.neighbors(spoiled, metric="precomputed")
    with pytest.raises(ValueError, match="X_new must hold distances >= 0; got -1e-09"):
        mksknn.predict(D, Y, spoiled[2:3], k=3, metric="precomputed")
    for size in (0.9e-12, 1.1e-12):  # of the largest: rounding up to 1e-12
        apart, below = D.copy(), D.copy()
        apart[2, 7] += size * D.max()
        below[2, 7] = below[7, 2] = -size * D.max()
        for matrix, words in ((apart, "symmetric .* to 1e-12"), (below, "distances >= 0")):
            if size < 1e-12:
                assert mksknn.neighbors(matrix, metric="precomputed").indices.shape == (30, 29)
                continue
            with pytest.raises(ValueError, match=words):
                mksknn.neighbors(matrix, metric="precomputed")
    huge = np.array([[0.0, 1.7e308], [-1.7e308, 0.0]])
    with pytest.raises(ValueError, match="X must be symmetric"):
        mksknn.neighbors(huge, metric="precomputed")


# ---------------------------------------------------------------- what would overflow


@pytest.mark.parametrize("scale", [1e-144, 1e-100, 1e100, 1e143])
@pytest.mark.parametrize("bounds", [(1e-100, 1e100), (1e-6, 1e6), (1e-100, 1e-99), (1e99, 1e100)])
@pytest.mark.parametrize("call", EVIDENCE)
@pytest.mark.filterwarnings("error")
def test_extreme_targets_and_ratios_are_answered_or_refused(scale, bounds, call):
    try:
        found = call(X, scale * Y, ratio_bounds=bounds, k_max=6)
    except ValueError as error:
        assert "y must" in str(error) and "ratio_bounds" in str(error)
        assert bounds != (1e-6, 1e6)
        return
    values = found.log_total if call is mksknn.posterior else found.log_evidence
    assert np.isfinite(values).all()
    if call is not mksknn.posterior:
        assert (np.asarray(found.sigma0) > 0).all() and np.isfinite(found.sigma0).all()
        assert (np.asarray(found.sigma2) > 0).all() and np.isfinite(found.sigma2).all()


@pytest.mark.parametrize(
    ("sigma0", "sigma2"),
    [
        (1e308, 1e308),
        (1e308, 1e208),
        (5e-324, 5e-324),
        (1e-300, 1e-290),
        (1e280, 1e280),
        (1e289, 1),
    ],
)
@pytest.mark.filterwarnings("error")
def test_sigmas_whose_evidence_does_not_fit_in_a_float(sigma0, sigma2):
    calls = [
        lambda: mksknn.log_evidence(X, 1e9 * Y, 3, sigma0=sigma0, sigma2=sigma2),
        lambda: mksknn.evidence_curve(X, 1e9 * Y, sigma0=sigma0, sigma2=sigma2),
        lambda: mksknn.select_k(X, 1e9 * Y, sigma0=sigma0, sigma2=sigma2),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="sigma0"):
            call()


@pytest.mark.parametrize(("sigma0", "sigma2"), [(1e200, 1e150), (1e-200, 1e-190), (1e250, 1e250)])
@pytest.mark.filterwarnings("error")
def test_large_sigmas_are_certified_with_their_rounding(sigma0, sigma2):
    """Products with sigma0 are far larger than determinants: rounding follows their size."""
    curve = mksknn.evidence_curve(X, Y, sigma0=sigma0, sigma2=sigma2)
    found = mksknn.select_k(X, Y, sigma0=sigma0, sigma2=sigma2)
    assert found.certified
    assert found.log_evidence == curve.log_evidence.max()
    assert all(len(repr(result)) < 220 for result in (curve, found))  # not of 200 digits


# ---------------------------------------------------------------- Dask


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


def test_workers_killed_at_the_start(cluster):
    """Killed 0 to 60 ms after the call: a nanny starts others, and the answer is the same."""
    distributed = pytest.importorskip("distributed")
    rng = np.random.default_rng(5)
    points = rng.normal(size=(200, 2))
    labels = (points[:, 0] + 0.5 * rng.normal(size=200) > 0).astype(int)
    expected = mksknn.evidence_curve(points, labels, k_max=30)
    with distributed.Client(cluster) as client, ThreadPoolExecutor(1) as pool:
        for delay in (0.0, 0.02, 0.06):
            client.wait_for_workers(2, timeout=120)
            victims = list(client.run(os.getpid).values())
            sweep = pool.submit(mksknn.evidence_curve, points, labels, k_max=30, executor=client)
            time.sleep(delay)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            found = sweep.result(timeout=240)
            np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)


@pytest.mark.parametrize("moment", [1, 2, 20])
def test_workers_killed_between_two_messages(cluster, monkeypatch, moment):
    """After the data were sent, after the first chunk, after the last; nothing is scattered."""
    distributed = pytest.importorskip("distributed")
    expected = mksknn.evidence_curve(X, Y, ks=range(1, 20))
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        victims, sent = list(client.run(os.getpid).values()), []
        submit = client.submit

        def killing(*arguments, **options):
            future = submit(*arguments, **options)
            sent.append(future)
            if len(sent) == moment:
                for victim in victims:
                    os.kill(victim, signal.SIGKILL)
            return future

        monkeypatch.setattr(client, "submit", killing)
        monkeypatch.setattr(client, "scatter", lambda *_, **__: pytest.fail("scattered"))
        found = mksknn.evidence_curve(X, Y, ks=range(1, 20), executor=client)
        assert len(sent) == 20
        np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)


def test_a_cluster_without_workers_ends_in_an_error(cluster, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(_threads, "_PATIENCE", 1.0)
    monkeypatch.setattr(_threads, "_LOOK", 0.2)
    with distributed.Client(cluster) as client:
        cluster.scale(0)
        deadline = time.monotonic() + 60
        while client.scheduler_info()["workers"] and time.monotonic() < deadline:
            time.sleep(0.1)
        with pytest.raises(TimeoutError, match="executor: the Dask cluster has had no worker for"):
            mksknn.evidence_curve(X, Y, executor=client)


def test_an_asynchronous_client_is_refused(cluster):
    """It would wait for its own event loop for ever."""
    distributed = pytest.importorskip("distributed")

    async def call():
        async with distributed.Client(cluster.scheduler_address, asynchronous=True) as client:
            with pytest.raises(ValueError, match="executor must be .* asynchronous=False"):
                mksknn.evidence_curve(X, Y, executor=client)

    asyncio.run(call())


@pytest.mark.parametrize("end", ["close", "restart"])
def test_a_client_that_ends_in_the_middle_says_why(cluster, monkeypatch, end):
    """The error is that of the sweep, not that of what is left to be cancelled."""
    distributed = pytest.importorskip("distributed")
    client = distributed.Client(cluster)
    submit, sent = client.submit, []

    def ending(*arguments, **options):
        sent.append(submit(*arguments, **options))
        if len(sent) == 20:
            getattr(client, end)()
        return sent[-1]

    monkeypatch.setattr(client, "submit", ending)
    with pytest.raises((CancelledError, ValueError), match="cancelled"):
        mksknn.evidence_curve(X, Y, ks=range(1, 20), executor=client)
    client.close()


class Lost:
    """A future as Dask's whose result is lost with its worker, some times."""

    def __init__(self, times, status="finished"):
        self.left, self.status = times, status

    def result(self, timeout):
        self.left -= 1
        if self.left >= 0:
            raise TimeoutError("lost")
        return "found"


def test_a_result_that_is_lost_is_waited_for_as_long_as_there_are_workers():
    looks = []
    assert _threads._result(Lost(3), lambda: looks.append(1)) == "found"
    assert len(looks) == 3

    def alone():
        raise TimeoutError("executor: no worker")

    with pytest.raises(TimeoutError, match="executor: no worker"):
        _threads._result(Lost(3), alone)
    with pytest.raises(TimeoutError, match="lost"):  # the task's own
        _threads._result(Lost(1, "error"), alone)


# ---------------------------------------------------------------- interrupts

# A signal while a call is under way. What it may still do is count: factorizations begun after
# the signal was heard (one more may be begun by another thread, before it knows).
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import mksknn
from mksknn import _cholmod, _dense, _sparse, _threads

rng = np.random.default_rng(0)
n = {n}
X = rng.normal(size=(n, 3))
noise = rng.integers(0, 2, n)
smooth = (X[:, 0] > 0).astype(int)
call = lambda: {call}
heard, begun, armed = [], [], []

def counted(owner, name):
    routine = getattr(owner, name)
    def wrapped(*arguments, **options):
        begun.append(time.perf_counter())
        if len(begun) == {at}:
            os.kill(os.getpid(), signal.SIGINT)
        return routine(*arguments, **options)
    setattr(owner, name, wrapped)

def interrupt(*_):
    heard.append(time.perf_counter())
    raise KeyboardInterrupt

for owner, name in {routines}:
    counted(owner, name)
signal.signal(signal.SIGINT, interrupt)
try:
    call()
    print("ended by itself", len(begun))
except KeyboardInterrupt:
    late = time.perf_counter() - heard[0]
    print(len(begun) - {at}, sum(when > heard[0] for when in begun), threading.active_count())
"""
DENSE = "[(_dense, 'cholesky'), (_dense, 'tridiagonalize')]"
SPARSE = "[(_sparse.SuperLU, 'logdet'), (_sparse.Cholmod, 'logdet')]"
PIECES = "[(_threads, 'check_stop')]"  # asked before each piece of work


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to one process")
@pytest.mark.parametrize(
    ("call", "n", "at", "routines"),
    [
        ("mksknn.evidence_curve(X, noise, backend='lapack')", 300, 5, DENSE),  # reductions
        ("mksknn.evidence_curve(X, noise, backend='lapack')", 1100, 4, DENSE),  # factorizations
        ("mksknn.evidence_curve(X, noise, backend='superlu', k_max=40)", 300, 4, SPARSE),
        pytest.param(
            *("mksknn.evidence_curve(X, noise, backend='cholmod', k_max=40)", 300, 4, SPARSE),
            marks=pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is not installed"),
        ),
        ("mksknn.posterior(X, noise, max_skipped=0)", 300, 5, DENSE),
        ("mksknn.posterior(X, noise, max_skipped=0, backend='lapack')", 1100, 4, DENSE),
        ("mksknn.select_k(X, noise, backend='lapack')", 1100, 3, DENSE),
        ("mksknn.select_k(X, smooth, backend='superlu', k_max=40)", 700, 4, SPARSE),
    ],
)
def test_ctrl_c_ends_a_call_before_the_next_factorization(call, n, at, routines):
    later, after = interrupted(call, n, at, routines)
    assert later <= 2 and after <= 1


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to one process")
@pytest.mark.parametrize(
    ("call", "n"),
    [
        ("mksknn.neighbors(X, 5)", 20_000),  # a tree
        ("mksknn.neighbors(np.hstack([X] * 7), 5)", 3_000),  # products
        ("mksknn.neighbors(X)", 3_000),  # whole rows
        ("mksknn.loo_curve(X, noise)", 1_500),
        ("mksknn.predict(X, noise, X + 0.1, k=5)", 20_000),
        ("mksknn.learn_metric(X, smooth)", 400),
        ("mksknn.select_k(X, smooth)", 3_000),  # the pass over all pairs, for the k beyond 48
    ],
)
def test_ctrl_c_ends_a_call_before_the_next_piece_of_work(call, n):
    """Pieces take milliseconds: until this thread hears of it, another may begin some."""
    _, after = interrupted(call, n, 6, PIECES)
    assert after <= 2


# A signal while this thread is inside a kernel, which takes some milliseconds.
IN_A_KERNEL = """
import os, signal, threading, time
import numpy as np
import mksknn
from mksknn import {module} as module

signal.signal(signal.SIGINT, signal.default_int_handler)  # of `make test &` it is ignored
X = np.random.default_rng(0).normal(size=(4000, 3))
y = (X[:, 0] > 0).astype(int)
calls = {{
    "mutual": lambda X, k: mksknn.knn_graph(X, k),
    "symmetric": lambda X, k: mksknn.knn_graph(X, k, graph="symmetric"),
    "select_k": lambda X, k: mksknn.select_k(X, y[: len(X)], graph="mutual", criterion="loo"),
}}
call = calls[{call!r}]
call(X[:50], 9)
routine, begun = module.{kernel}, []

def slow(*arguments):
    begun.append(time.perf_counter())
    if len(begun) == 1:
        threading.Timer(0.002, os.kill, [os.getpid(), signal.SIGINT]).start()
    return routine(*arguments)

module.{kernel} = slow
try:
    call(X, 3000)
    print("ended by itself")
except KeyboardInterrupt:
    print("interrupted", len(begun))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to one process")
@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ("mutual", "_row_sizes"),
        ("mutual", "_fill_admirers"),
        ("symmetric", "_fill_rows"),
        ("select_k", "_pair_up"),
    ],
)
def test_ctrl_c_in_a_kernel_is_an_interrupt(call, kernel):
    """Numba makes a SystemError of it; and what takes long is done in blocks."""
    script = IN_A_KERNEL.format(module="_graphs", call=call, kernel=kernel)
    how, begun = run(script, NUMBA_NUM_THREADS="1").split()
    assert how == "interrupted" and int(begun) < 12  # as many blocks there are


def test_every_function_with_kernels_hears_ctrl_c(monkeypatch):
    plain = {"as_neighbors", "show_config", "plot_curve", "plot_decision", "plot_relevance"}
    public = {name for name in mksknn.__all__ if inspect.isfunction(getattr(mksknn, name))}
    assert {name for name in public if not hasattr(getattr(mksknn, name), "__wrapped__")} == plain

    def overlooked(*_):
        try:
            raise SystemError("one function of Numba") from KeyboardInterrupt()
        except SystemError as error:
            raise SystemError("returned a result with an exception set") from error

    monkeypatch.setattr(_graphs, "_row_sizes", overlooked)
    with pytest.raises(KeyboardInterrupt):
        mksknn.knn_graph(X, 3)

    def fault(*_):
        raise SystemError("of another kind")

    monkeypatch.setattr(_graphs, "_row_sizes", fault)
    with pytest.raises(SystemError, match="of another kind"):
        mksknn.knn_graph(X, 3)


def interrupted(call, n, at, routines):
    """What is begun after the signal was sent, and after it was heard; no thread is left."""
    script = INTERRUPTED.format(call=call, n=n, at=at, routines=routines)
    done = run(script, NUMBA_NUM_THREADS="2")
    assert done != "" and not done.startswith("ended"), done
    later, after, alive = map(int, done.split())
    assert alive == 1
    return later, after


# The same with workers, which write down when each factorization ended; pools are waited for.
WORKERS_INTERRUPTED = """
import concurrent.futures, multiprocessing, os, signal, sys, time
from pathlib import Path
import numpy as np
import mksknn
from mksknn import _dense, _sparse

kind, backend, log = sys.argv[1:]
caller = os.getpid() if kind == "threads" else os.getppid()

def written_down(routine):
    def wrapped(*arguments):
        found = routine(*arguments)
        time.sleep(0.05)
        with open(log, "a") as file:
            file.write(f"{time.monotonic()}\\n")
        if len(Path(log).read_text().splitlines()) == 4:
            os.kill(caller, signal.SIGINT)
        return found
    return wrapped

def prepare():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    change()

def change():
    if backend == "lapack":
        _dense.tridiagonalize = written_down(_dense.tridiagonalize)
    for one in (_sparse.Cholmod, _sparse.SuperLU):
        one._factorize = written_down(one._factorize)

def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # of `make test &` it is ignored
    X = np.random.default_rng(0).normal(size=(300, 3))
    noise = np.random.default_rng(1).integers(0, 2, 300)
    if kind == "threads":
        change()
        pool = concurrent.futures.ThreadPoolExecutor(2)
    else:
        spawn = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(2, spawn, prepare)
    heard = []
    with pool:
        try:
            mksknn.evidence_curve(X, noise, backend=backend, k_max=40, executor=pool)
        except KeyboardInterrupt:
            heard.append(time.monotonic())
    ends = [float(line) for line in Path(log).read_text().split()]
    print(len(heard), sum(end > heard[0] for end in ends))

if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to one process")
@pytest.mark.parametrize("backend", ["lapack", "superlu", "cholmod"])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_ctrl_c_reaches_workers_before_their_next_factorization(kind, backend, tmp_path):
    """Who closes the pool waits for one factorization of each worker, not for a chunk of many."""
    if backend == "cholmod" and cholmod() is None:
        pytest.skip("scikit-sparse is not installed")
    script = tmp_path / "script.py"
    script.write_text(WORKERS_INTERRUPTED)
    start = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    out = run(start, kind, backend, str(tmp_path / "log"))
    heard, after = map(int, out.split())
    assert heard == 1 and after <= 2


def run(script, *arguments, **environment):
    """What a script prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---------------------------------------------------------------- processes of other kinds

PLAIN = """
import sys
import numpy as np
import mksknn

X = np.random.default_rng(0).normal(size=(24, 2))
y = (X[:, 0] > 0).astype(int)
best = mksknn.select_k(X, y)
label = mksknn.predict(X, y, X[:9], best).label
try:
    mksknn.select_k(X, y[:-1])
except ValueError as error:
    print(best.k, best.log_evidence.hex(), *label, error, best.certified)
"""


def test_optimized_and_uncompiled_python_give_the_same_answers_and_refusals():
    expected = run(PLAIN)
    assert "y must have one entry for each" in expected and expected.endswith("True\n")
    assert run(PLAIN, PYTHONOPTIMIZE="2") == expected
    k, evidence, *rest = run(PLAIN, NUMBA_DISABLE_JIT="1").split()
    assert [k, *rest] == [expected.split()[0], *expected.split()[2:]]
    assert float.fromhex(evidence) == pytest.approx(float.fromhex(expected.split()[1]), rel=1e-12)


NO_MEMORY = """
import resource, sys
import numpy as np
import mksknn

n = 3000
X = np.random.default_rng(0).normal(size=(n, 3))
noise = np.random.default_rng(1).integers(0, 2, n)
small = mksknn.select_k(X[:40], noise[:40]).k
for call in (mksknn.evidence_curve, mksknn.posterior, mksknn.select_k):
    call(X[:40], noise[:40], backend="lapack")
taken = 1024 * int(next(s for s in open("/proc/self/status") if s.startswith("VmSize")).split()[1])
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26, resource.RLIM_INFINITY))
for call in (mksknn.evidence_curve, mksknn.posterior, mksknn.select_k, mksknn.neighbors):
    try:
        call(X, noise, backend="lapack") if call is not mksknn.neighbors else call(X)
    except (MemoryError, ValueError, RuntimeError) as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(mksknn.select_k(X[:40], noise[:40]).k == small)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to limit memory")
def test_memory_that_ends_is_an_error_and_no_crash():
    """On one thread: where there is no room for the data of a new one, the C library may abort."""
    *errors, again = run(NO_MEMORY, NUMBA_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1").split()
    assert len(errors) == 4 and again == "True"


# ---------------------------------------------------------------- the same bits

# n = 700 has one tile, n = 2,100 several; both backends where the graph is sparse.
SAME = """
import contextlib, json, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import mksknn

n, backend, workers = json.loads(sys.argv[1])
rng = np.random.default_rng(1)
X = rng.normal(size=(n, 3))
y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
options = {"backend": backend, "ks": [11, 40] if backend == "lapack" else [3, 5]}
with contextlib.ExitStack() as stack:
    if workers:
        spawn = multiprocessing.get_context("spawn")
        options["executor"] = stack.enter_context(ProcessPoolExecutor(workers, spawn))
    best = mksknn.select_k(X, y, **options)
    curve = mksknn.evidence_curve(X, y, **options)
    found = mksknn.posterior(X, y, **options)
new = X[:50] + 0.1
answers = [best.k, best.certified, curve.best_k, found.best_k]
for model in (best, found):
    answers += mksknn.predict(X, y, new, model).label.tolist()
values = [best.log_evidence, best.sigma0, best.sigma2, best.margin]
values += [*curve.log_evidence, *curve.sigma0, *curve.sigma2]
values += [*found.probability, *found.log_marginal, found.ratio, *found.mixture.weight]
print(json.dumps([[int(one) for one in answers], [float(value).hex() for value in values]]))
"""
BACKENDS = ["lapack", "auto"]


def answers_of(n, backend, workers=0, numba=1, blas=1):
    """k, labels and certified; then the values, bit by bit."""
    threads = {"OPENBLAS_NUM_THREADS": str(blas), "OMP_NUM_THREADS": str(blas)}
    what = json.dumps([n, backend, workers])
    return json.loads(run(SAME, what, NUMBA_NUM_THREADS=str(numba), **threads))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [700, 2100])
def test_the_same_bits_for_any_number_of_threads(n, backend):
    found = answers_of(n, backend)
    assert answers_of(n, backend, numba=2, blas=4) == found
    if n == 700:
        assert answers_of(n, backend, numba=1, blas=2) == found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [700, pytest.param(2100, marks=pytest.mark.slow)])
def test_the_same_bits_from_workers(n, backend):
    """To the last bit, as docs/howto/cluster.md says of machines with one kind of BLAS."""
    assert answers_of(n, backend, workers=2, numba=2, blas=2) == answers_of(n, backend)


# ---------------------------------------------------------------- a busy machine

# Our threads, and those that a BLAS would use: looked at in every factorization. Then threads as
# the system counts them, so those of any BLAS too: none has come to stay (the last of ours may take
# a moment to go), and of those that were there before none has had processor time. A BLAS that
# waits for work takes none, one that spins a lot (510 hundredths of a second without the limit).
BUSY = """
import contextlib, json, os, sys, threading, time
from pathlib import Path
import numpy as np
import mksknn
from mksknn import _dense
from threadpoolctl import threadpool_info

rng = np.random.default_rng(0)
n = int(sys.argv[1])
X = rng.normal(size=(n, 3))
noise = rng.integers(0, 2, n)
seen = []

def ticks():
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            found[task.name] = int(fields[11]) + int(fields[12])
    del found[str(os.getpid())]
    return found

def blas():
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

def looked_at(routine):
    def wrapped(*arguments, **options):
        seen.append((threading.active_count(), max(blas())))
        return routine(*arguments, **options)
    return wrapped

for call in (mksknn.select_k, mksknn.posterior, mksknn.evidence_curve):
    call(X[:30], noise[:30], backend="lapack")  # compiles, and loads whatever BLAS there is
mksknn.select_k(X, X[:, 0], k_max=9)
_dense.cholesky = looked_at(_dense.cholesky)
_dense.tridiagonalize = looked_at(_dense.tridiagonalize)
before, last, spent = blas(), None, ticks()
for _ in range(100):  # threads of BLAS spin for a while after what was computed so far
    if last == spent:
        break
    time.sleep(0.1)
    last, spent = spent, ticks()
for call in (mksknn.select_k, mksknn.posterior, mksknn.evidence_curve):
    call(X, noise, ks=range(1, n - 1, n // 6), backend="lapack")
mksknn.select_k(X, noise)  # the whole way: ranking, bounds, whatever backend
mksknn.loo_curve(X, noise)
after, busy = blas(), ticks()
for _ in range(200):
    if busy.keys() <= spent.keys():
        break
    time.sleep(0.05)
    busy = ticks()
print(json.dumps([before, after, seen, spent, busy]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
@pytest.mark.parametrize("n", [300, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_threads_than_allowed_and_one_for_each_blas(n, threads):
    """BLAS threads spin for cores that another process has: one each, and no pool of ours."""
    out = run(BUSY, str(n), NUMBA_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS="4")
    before, after, seen, spent, busy = json.loads(out)
    assert before == after and len(seen) > 5
    assert max(count for count, _ in seen) <= threads
    assert {used for _, used in seen} == {1}
    assert busy.keys() <= spent.keys()
    assert all(busy[task] - spent[task] <= 2 for task in busy)
