"""Sweeps on a real Dask cluster of processes: equal answers, lost workers, errors."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import mksknn
from mksknn._threads import map_chunks, thread_count

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    """Two worker processes of one thread each."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def blobs():
    """Three overlapping classes in the plane."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 120)
    return rng.normal(size=(120, 2)) + 1.5 * y[:, None], y


def _assert_same_curve(curve, other):
    for name in ("k", "log_evidence", "sigma0", "sigma2", "at_bound"):
        np.testing.assert_array_equal(getattr(curve, name), getattr(other, name))


@pytest.mark.parametrize("options", [{}, {"graph": "mutual"}, {"backend": "superlu", "k_max": 12}])
def test_curve_equals_the_serial_one(client, blobs, options):
    _assert_same_curve(
        mksknn.evidence_curve(*blobs, executor=client, **options),
        mksknn.evidence_curve(*blobs, **options),
    )


def test_selection_and_posterior_equal_the_serial_ones(client, blobs):
    for options in ({}, {"backend": "superlu", "k_max": 12}):
        ours = mksknn.select_k(*blobs, executor=client, **options)
        serial = mksknn.select_k(*blobs, **options)
        for name in ("k", "certified", "log_evidence", "sigma0", "sigma2", "margin"):
            assert getattr(ours, name) == getattr(serial, name)
        ours = mksknn.posterior(*blobs, executor=client, **options)
        serial = mksknn.posterior(*blobs, **options)
        np.testing.assert_array_equal(ours.probability, serial.probability)
        assert (ours.log_total, ours.ratio) == (serial.log_total, serial.ratio)


def _die_once(marker, chunk):
    """End the worker on the first call for chunk 3."""
    if chunk == 3:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return chunk
        os._exit(1)
    return chunk


def test_a_worker_that_dies_costs_no_results(client, tmp_path):
    marker = str(tmp_path / "died")
    assert map_chunks(_die_once, marker, range(12), executor=client) == list(range(12))
    assert Path(marker).exists()


def test_a_worker_killed_during_a_curve(client):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(350, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=350) > 0).astype(int)
    expected = mksknn.evidence_curve(X, y)
    victim = next(iter(client.run(os.getpid).values()))
    with ThreadPoolExecutor(1) as pool:
        sweep = pool.submit(mksknn.evidence_curve, X, y, executor=client)
        time.sleep(0.3)
        os.kill(victim, signal.SIGKILL)
        _assert_same_curve(sweep.result(timeout=300), expected)


def test_the_only_worker_may_die_with_the_data(tmp_path):
    marker = str(tmp_path / "died")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert map_chunks(_die_once, marker, range(6), executor=client) == list(range(6))


def _die(shared, chunk):
    os._exit(1)


def test_a_chunk_that_ends_every_worker_ends_in_an_error(client):
    with pytest.raises(distributed.KilledWorker, match="all those workers died"):
        map_chunks(_die, None, range(1), executor=client)
    assert map_chunks(_fail_on_two, None, [0, 1], executor=client) == [0, 1]


def test_a_closed_client(client):
    with distributed.Client(client.cluster) as closed:
        pass
    with pytest.raises(ValueError, match="executor takes no more work"):
        map_chunks(_fail_on_two, None, [0, 1], executor=closed)


def _fail_on_two(shared, chunk):
    if chunk == 2:
        raise ArithmeticError(f"chunk {chunk} of {shared}")
    return chunk


@pytest.mark.parametrize("kind", ["dask", "processes"])
def test_an_error_in_a_task_reaches_the_caller(client, kind):
    if kind == "dask":
        with pytest.raises(ArithmeticError, match="chunk 2 of things"):
            map_chunks(_fail_on_two, "things", range(5), executor=client)
        return
    with (
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
        pytest.raises(ArithmeticError, match="chunk 2 of things"),
    ):
        map_chunks(_fail_on_two, "things", range(5), executor=pool)


def _threads(shared, chunk):
    from threadpoolctl import threadpool_info

    libraries = [one for one in threadpool_info() if one["user_api"] == "blas"]
    return thread_count(), {one["num_threads"] for one in libraries}


def test_a_worker_keeps_to_one_thread(client):
    for threads, blas in map_chunks(_threads, None, range(4), executor=client):
        assert threads == 1
        assert blas == {1}


def test_progress_counts_every_chunk(client, capsys):
    map_chunks(_fail_on_two, None, [0, 1, 3, 4], executor=client, progress=True)
    assert "4/4" in capsys.readouterr().err
