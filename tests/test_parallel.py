"""Sweeps on threads, processes and foreign executors: same bits, clean failures, progress."""

import importlib.util
import multiprocessing
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import mksknn
from mksknn._threads import Progress, limit_threads, map_chunks

RNG = np.random.default_rng(41)
X = RNG.normal(size=(40, 2))
Y = (X[:, 0] + 0.5 * RNG.normal(size=40) > 0).astype(int)
BACKENDS = ("lapack", "superlu") + ("cholmod",) * (importlib.util.find_spec("sksparse") is not None)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def assert_same(one, other):
    for name in ("k", "log_evidence", "sigma0", "sigma2", "at_bound"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


class Inline:
    """An executor that works at once, and keeps its futures."""

    def __init__(self, fail_at=None, error=None):
        self.fail_at, self.error, self.futures = fail_at, error, []

    def submit(self, function, *args):
        future = Recorded()
        if self.fail_at is None:
            future.set_result(function(*args))
        elif len(self.futures) == self.fail_at:
            future.set_exception(self.error)
        self.futures.append(future)
        return future


class Recorded(Future):
    """A future that remembers being cancelled."""

    asked = False

    def cancel(self):
        self.asked = True
        return super().cancel()


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize(
    ("backend", "fixed"), [("lapack", True), *((backend, False) for backend in BACKENDS)]
)
def test_processes_and_threads(processes, fixed, backend):
    options = {"backend": backend, "graph": "mutual"}
    if fixed:
        options.update(sigma0=0.5, sigma2=0.1)
    with limit_threads(1):
        serial = mksknn.evidence_curve(X, Y, **options)
    for threads in (2, 3):
        with limit_threads(threads):
            assert_same(mksknn.evidence_curve(X, Y, **options), serial)
    assert_same(mksknn.evidence_curve(X, Y, executor=processes, **options), serial)
    assert_same(mksknn.evidence_curve(X, Y, executor=Inline(), **options), serial)
    with ThreadPoolExecutor(2) as pool:
        assert_same(mksknn.evidence_curve(X, Y, executor=pool, **options), serial)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_processes_started_in_other_ways(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    expected = mksknn.evidence_curve(X, Y, k_max=9)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert_same(mksknn.evidence_curve(X, Y, k_max=9, executor=pool), expected)


def test_calls_within_processes_of_joblib():
    joblib = pytest.importorskip("joblib")
    call = joblib.delayed(mksknn.evidence_curve)
    for found in joblib.Parallel(2)(call(X, Y, k_max=9) for _ in range(2)):
        assert_same(found, mksknn.evidence_curve(X, Y, k_max=9))


@pytest.mark.parametrize("backend", ["auto", "superlu"])
def test_selection_on_processes_and_threads(processes, backend):
    with limit_threads(1):
        serial = mksknn.select_k(X, Y, backend=backend)
    others = [mksknn.select_k(X, Y, backend=backend, executor=processes)]
    for threads in (2, 3):
        with limit_threads(threads):
            others.append(mksknn.select_k(X, Y, backend=backend))
    for other in others:
        assert (other.k, other.log_evidence) == (serial.k, serial.log_evidence)
        assert (other.sigma0, other.sigma2) == (serial.sigma0, serial.sigma2)
        assert serial.k in other.evaluated


def test_regression_and_classes_on_processes(processes):
    three = RNG.permutation(np.arange(40) % 3)
    for y in (np.sin(X), three, three.astype(str)):
        assert_same(mksknn.evidence_curve(X, y, executor=processes), mksknn.evidence_curve(X, y))


def test_the_executor_stays_open(processes):
    mksknn.evidence_curve(X, Y, ks=[1, 2], executor=processes)
    assert processes.submit(max, 1, 2).result() == 2


def test_calls_from_several_threads_at_once():
    expected = mksknn.evidence_curve(X, Y)
    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(mksknn.evidence_curve, X, Y) for _ in range(6)]:
            assert_same(future.result(), expected)


# ---------------------------------------------------------------- map_chunks


@pytest.mark.parametrize("options", [{}, {"threads": True}, {"executor": Inline()}])
def test_order_of_results(options):
    with limit_threads(3):
        found = map_chunks(lambda shared, chunk: shared + chunk, 100, range(9), **options)
    assert found == list(range(100, 109))


def broken(shared, chunk):
    if chunk == shared:
        raise KeyError(f"chunk {chunk}")
    return chunk


@pytest.mark.parametrize("bad", [0, 4, 8])
def test_errors_reach_the_caller(processes, bad):
    ways = [{}, {"threads": True}, {"executor": processes}]
    with ThreadPoolExecutor(2) as pool:
        for way in [*ways, {"executor": pool}]:
            with limit_threads(2), pytest.raises(KeyError, match=f"chunk {bad}"):
                map_chunks(broken, bad, range(9), **way)


@pytest.mark.parametrize("error", [RuntimeError("lost"), MemoryError(), KeyboardInterrupt()])
def test_a_failure_cancels_the_rest(error):
    executor = Inline(fail_at=2, error=error)
    with pytest.raises(type(error)) as caught:
        map_chunks(broken, None, range(6), executor=executor)
    assert caught.value is error
    assert len(executor.futures) == 6
    assert all(future.asked for future in executor.futures)


@pytest.mark.parametrize("last", [False, True])
def test_a_failure_is_not_waited_for(last):
    """Whichever chunk fails, those not begun are never begun."""
    begun = []
    release = threading.Event()

    def work(shared, chunk):
        begun.append(chunk)
        if chunk == (19 if last else 0):
            raise ValueError("early")
        release.wait(0.02)
        return chunk

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="early"):
        map_chunks(work, None, range(20), executor=pool)
    if last:  # the last chunk is begun first
        assert len(begun) <= 5


def test_an_interrupt_while_waiting_cancels(monkeypatch):
    class Interrupted(Recorded):
        def result(self, timeout=None):
            raise KeyboardInterrupt

    futures = []

    class Executor:
        def submit(self, function, *args):
            futures.append(Interrupted())
            futures[-1].set_result(None)
            return futures[-1]

    with pytest.raises(KeyboardInterrupt):
        map_chunks(broken, None, range(4), executor=Executor())
    assert all(future.asked for future in futures)


def test_a_submit_that_fails():
    class Closed:
        def submit(self, function, *args):
            raise RuntimeError("cannot schedule new futures after shutdown")

    with pytest.raises(ValueError, match="executor takes no more work: .* after shutdown"):
        mksknn.evidence_curve(X, Y, executor=Closed())


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_that_is_shut_down(kind):
    pool = kind(1)
    pool.shutdown()
    with pytest.raises(ValueError, match="executor takes no more work"):
        mksknn.evidence_curve(X, Y, executor=pool)


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor, Inline])
def test_a_class_instead_of_an_executor(kind):
    with pytest.raises(TypeError, match=rf"executor .* such as {kind.__name__}\(\)"):
        mksknn.evidence_curve(X, Y, executor=kind)


def test_a_submit_without_futures():
    class Eager:
        def submit(self, function, *args):
            return function(*args)

    with pytest.raises(TypeError, match="executor .* returns futures .* returned list"):
        mksknn.evidence_curve(X, Y, executor=Eager())


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize("function", [mksknn.evidence_curve, mksknn.select_k])
def test_silent_by_default(function, capfd):
    function(X, Y, k_max=20)
    function(X, Y, k_max=20, progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("backend", ["lapack", "superlu"])
@pytest.mark.parametrize("function", [mksknn.evidence_curve, mksknn.select_k])
def test_a_bar_when_asked_for(function, backend, capsys):
    plain = function(X, Y, k_max=20, backend=backend)
    capsys.readouterr()
    shown = function(X, Y, k_max=20, backend=backend, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "step" in err
    np.testing.assert_array_equal(plain.log_evidence, shown.log_evidence)


def test_a_full_bar(capsys):
    mksknn.evidence_curve(X, Y, ks=range(1, 11), backend="superlu", progress=True)
    assert "2/2" in capsys.readouterr().err
    with limit_threads(2):
        mksknn.evidence_curve(X, Y, k_max=10, progress=True)
    assert "10/10" in capsys.readouterr().err


@pytest.mark.parametrize("function", [mksknn.posterior, mksknn.select_k])
def test_every_k_is_counted_when_it_is_done(function, monkeypatch):
    """Not a round of them at once, which may take minutes."""
    steps = []
    monkeypatch.setattr(Progress, "update", lambda bar, count=1: steps.append(count))
    found = function(X, Y, progress=True)
    assert len(steps) > 1 and set(steps) == {1}
    if function is mksknn.select_k:
        assert len(steps) <= len(found.evaluated)


def test_a_bar_without_a_total_tells_no_speed(capsys):
    mksknn.select_k(X, Y, k_max=20, progress=True)
    shown = capsys.readouterr().err
    assert "select_k, symmetric: step " in shown
    assert "?" not in shown


@pytest.mark.parametrize("function", [mksknn.posterior, mksknn.select_k])
def test_a_bar_names_the_metric_where_there_are_several(function, capsys):
    function(X, Y, k_max=10, metric=["euclidean", "manhattan"], progress=True)
    assert "symmetric, manhattan: step " in capsys.readouterr().err


def test_without_tqdm(monkeypatch):
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    for function in (mksknn.evidence_curve, mksknn.select_k):
        with pytest.raises(ImportError, match="progress=True needs tqdm"):
            function(X, Y, progress=True)
        function(X, Y, k_max=3)
