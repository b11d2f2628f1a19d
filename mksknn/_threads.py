"""Threads: one for each BLAS and OpenMP region, several of our own over pieces of work.

The only file that sets how many threads anything uses. Pieces are fixed by the problem, never by
who works on them, and each is computed from nothing but itself, with one thread in every library
below: so the answer is the same for any number of threads, processes or machines, and no thread
spins for a core it does not have.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import graphlib
import heapq
import os
import pickle
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numba
import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS of np.dot in kernels before a hold)
from threadpoolctl import LibController, ThreadpoolController

# ---------------------------------------------------------------------------------------------
# One thread in each library


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Hold every BLAS to one thread and keep OpenMP regions from starting any.

    Holds are counted: the last one to end restores what was found by the first.
    """
    token = object()
    try:
        _limits.hold(token)
        yield
    finally:
        _limits.release(token)


def blas_names() -> list[str]:
    """Every BLAS that is loaded: its name, version, way of threading, and threads it would use."""
    names = []
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        found = library.info()
        parts = [found[key] for key in ("version", "threading_layer", "architecture")]
        text = " ".join([found["internal_api"], *(part for part in parts if part)])
        names.append(f"{text}, threads: {found['num_threads']} ({Path(library.filepath).name})")
    return sorted(names)


@dataclass(frozen=True, eq=False)
class _Setting:
    """One number in one library, and its value while it is held."""

    get: Callable[[], int]
    set: Callable[[int], object]
    held: int

    @functools.cached_property
    def per_thread(self) -> bool:
        """Whether each thread has a value of its own. Tried out: it depends on the version."""
        before = self.get()
        if before == self.held:
            return False
        helper = threading.Thread(target=self.set, args=(self.held,))
        helper.start()
        helper.join()
        if self.get() == before:
            return True
        self.set(before)
        return False


class _Holders:
    """Who holds some settings, and what these were before."""

    def __init__(self) -> None:
        self._tokens: set[object] = set()
        self._before: dict[_Setting, int] = {}

    def hold(self, token: object, settings: Sequence[_Setting]) -> None:
        self._tokens.add(token)
        for setting in settings:
            if setting not in self._before:
                before = self._before[setting] = setting.get()
                if before != setting.held:
                    setting.set(setting.held)

    def release(self, token: object) -> None:
        self._tokens.discard(token)
        if not self._tokens:
            self._restore()

    def forget(self) -> None:
        self._tokens.clear()
        self._restore()

    def _restore(self) -> None:
        try:
            for setting, value in self._before.items():
                if value != setting.held:
                    setting.set(value)
        finally:
            self._before.clear()


class _HoldersHere(_Holders, threading.local):
    """The same in each thread by itself."""


class _Limits:
    """The settings of all libraries, and who holds them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._process, self._thread = _Holders(), _HoldersHere()
        self._found: dict[str, list[_Setting]] = {}  # by the library's file
        self._modules = -1

    def hold(self, token: object) -> None:
        # a library comes with a module (scikit-sparse is imported late), so this tells of new ones
        if len(sys.modules) != self._modules:
            self._find()
        self._thread.hold(token, self._per_thread)
        with self.lock:
            self._process.hold(token, self._per_process)

    def release(self, token: object) -> None:
        self._thread.release(token)
        with self.lock:
            self._process.release(token)

    def forget(self) -> None:
        """In a child made by fork: the holders are threads of its parent."""
        self.lock = threading.RLock()
        self._process.forget()
        self._thread.forget()

    def _find(self) -> None:
        """Look for libraries that have been loaded since."""
        with self.lock:
            modules = len(sys.modules)
            libraries = ThreadpoolController().lib_controllers
            levels = not any(_runs_on_openmp(library) for library in libraries)
            for library in libraries:
                if library.filepath not in self._found:
                    self._found[library.filepath] = _settings(library, levels)
            settings = [setting for found in self._found.values() for setting in found]
            self._per_thread = [setting for setting in settings if setting.per_thread]
            self._per_process = [setting for setting in settings if not setting.per_thread]
            self._modules = modules  # last: from now on nobody waits for this to end


def _runs_on_openmp(library: LibController) -> bool:
    if library.user_api != "blas":
        return False
    return library.internal_api == "mkl" or library.info().get("threading_layer") == "openmp"


def _settings(library: LibController, levels: bool) -> list[_Setting]:
    """What to hold in a library; `levels` says whether OpenMP's levels may be.

    SuiteSparse 5 starts four OpenMP threads for each supernode, to copy a few columns, whatever the
    number of threads set: only without active levels there are none. Then k = 20 in 2-D took
    0.021 s instead of 0.067 s at n = 10,000, and 0.34 s instead of 0.50 s at n = 100,000. A BLAS
    that runs on OpenMP itself could wait for the threads it does not get, so there levels stay. And
    they stay where all threads of the process have them in common, as in the libgomp that comes
    with scikit-learn: its search for neighbours in another thread counts on the threads it asked
    for, and answered with rubbish.
    """
    dynlib = library.dynlib
    if levels and library.user_api == "openmp" and hasattr(dynlib, "omp_set_max_active_levels"):
        get, set_ = dynlib.omp_get_max_active_levels, dynlib.omp_set_max_active_levels
        own = _Setting(get, set_, 0)
        if own.per_thread:
            return [own]
    if library.get_num_threads() is None:
        return []
    return [_Setting(library.get_num_threads, functools.partial(_set_threads, library), 1)]


def _set_threads(library: LibController, threads: int) -> None:
    """Set from whichever thread; threadpoolctl 3.7 and later listen to the first one only."""
    let_go = getattr(library, "clear_controlling_thread", None)
    if let_go is None:
        library.set_num_threads(threads)
        return
    let_go(force=True)
    library.set_num_threads(threads)
    let_go(force=True)


_limits = _Limits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _limits.lock.acquire(),
        after_in_parent=lambda: _limits.lock.release(),
        after_in_child=_limits.forget,
    )


# ---------------------------------------------------------------------------------------------
# Pieces of work on threads of our own

_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("mksknn_threads", default=None)


def thread_count() -> int:
    """Threads to use here: ``NUMBA_NUM_THREADS`` (by default the cores of this process)."""
    limit = _limit.get()
    cores: int = vars(numba.config)["NUMBA_NUM_THREADS"]
    return cores if limit is None else limit


def limit_threads(threads: int) -> contextlib.AbstractContextManager[None]:
    """Use at most `threads` threads for what this thread starts inside the block."""
    return _having(_limit, threads)


@contextlib.contextmanager
def _having(variable: contextvars.ContextVar, value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class Stopped(Exception):
    """Nobody waits for this piece of work any more."""


_stopping: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "mksknn_stopping", default=lambda: False
)


def check_stop() -> None:
    """End this piece of work here if the call it belongs to has failed or was interrupted."""
    if _stopping.get()():
        raise Stopped


def run_blocks(work: Callable[[int, int], None], size: int, block: int) -> None:
    """Call ``work(start, stop)`` over ``range(size)`` cut into blocks, on all threads.

    The blocks are the same whatever the number of threads, and each writes rows of its own.
    """
    run_pieces(lambda start: work(start, min(start + block, size)), range(0, size, block))


def run_pieces(work: Callable[[Any], object], pieces: Sequence, threads: int | None = None) -> None:
    """Call ``work(piece)`` for each piece; each thread takes the next one when it is free.

    The caller's thread is one of them. After an error or an interrupt nobody takes another piece,
    and whatever runs inside a piece learns of it from `check_stop`.
    """
    allowed = thread_count()
    threads = max(1, min(allowed if threads is None else threads, len(pieces)))
    if threads == 1:
        _run_here(work, pieces)
        return
    outer = _stopping.get()
    stop = threading.Event()
    pending, lock = iter(pieces), threading.Lock()
    errors: list[BaseException] = []

    def stopping() -> bool:
        return stop.is_set() or outer()

    def take() -> None:
        share = limit_threads(max(1, allowed // threads))
        with one_thread_each(), share, _having(_stopping, stopping):
            while True:
                check_stop()
                with lock:
                    piece = next(pending, lock)
                if piece is lock:
                    return
                work(piece)

    def help_out() -> None:
        try:
            take()
        except BaseException as error:
            errors.append(error)
            stop.set()

    helpers = [threading.Thread(target=help_out) for _ in range(threads - 1)]
    try:
        for at in range(len(helpers)):
            helpers[at].start()
        take()
        while helpers:
            helpers[-1].join()
            helpers.pop()
    except BaseException as error:
        stop.set()
        if not errors or not isinstance(error, Stopped):
            raise
    finally:
        # none is left to the garbage collector: Python drops an interrupt that comes while the
        # end of a thread object is being noted
        while helpers:
            if helpers[-1].ident is not None:  # an interrupt may come before it is started
                helpers[-1].join()
            helpers.pop()
    if errors:
        raise errors[0]


def _run_here(work: Callable[[Any], object], pieces: Sequence) -> None:
    """The same on the thread of the caller alone, without what several threads need."""
    with one_thread_each():
        for piece in pieces:
            check_stop()
            work(piece)


def run_tasks(work: Callable[[Any], object], needs: Mapping[Any, Sequence]) -> None:
    """Call ``work(task)`` for each task after those that it needs, the first one in order first."""
    tasks = list(needs)
    number = {task: at for at, task in enumerate(tasks)}
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    ready = sorted(number[task] for task in sorter.get_ready())  # a heap
    changed = threading.Condition()

    def next_task(_: int) -> None:
        with changed:
            while not ready:
                check_stop()  # whoever has what all wait for may have failed
                changed.wait(0.1)
            at = heapq.heappop(ready)
        work(tasks[at])
        with changed:
            sorter.done(tasks[at])
            for task in sorter.get_ready():
                heapq.heappush(ready, number[task])
            changed.notify_all()

    run_pieces(next_task, range(len(tasks)))


# ---------------------------------------------------------------------------------------------
# Sweeps over k


class Executor(Protocol):
    """Anything that takes work and returns futures: a process pool, a Dask client."""

    def submit(self, fn: Callable, /, *args: object) -> object:
        """Start ``fn(*args)``."""


WORKER_THREADS = "MKSKNN_WORKER_THREADS"  # environment variable of an executor's workers


def map_chunks(
    function: Callable,
    shared: object,
    chunks: Sequence,
    *,
    executor: Any = None,
    threads: bool = False,
    progress: bool | Progress = False,
) -> list:
    """``[function(shared, chunk) for chunk in chunks]``, the last chunk (the costliest) first.

    `threads` says that `function` releases the GIL, so that threads help when there is no executor.
    Chunks are counted on a bar of their own, or on the one that is given.
    """
    shown: contextlib.AbstractContextManager[Progress]
    if isinstance(progress, Progress):
        shown = contextlib.nullcontext(progress)
    else:
        shown = progress_bar("evaluating", len(chunks), progress)
    with shown as bar:
        if executor is not None:
            return _on_executor(executor, function, shared, chunks, bar)
        results = [None] * len(chunks)

        def work(at: int) -> None:
            results[at] = function(shared, chunks[at])
            bar.update()

        run_pieces(work, range(len(chunks))[::-1], None if threads else 1)
        return results


# ---------------------------------------------------------------------------------------------
# Executors


def _on_executor(
    executor: Any, function: Callable, shared: object, chunks: Sequence, bar: Progress
) -> list:
    """Send what the chunks share once to each worker, if the executor lets us."""
    if hasattr(executor, "scatter"):  # a Dask client
        return _on_dask(executor, function, shared, chunks, bar)
    if isinstance(executor, ProcessPoolExecutor):  # the same machine: through a file
        with _spooled(shared) as path:
            return _collect(executor.submit, (_work_spooled, function, path), chunks, bar)
    if isinstance(executor, ThreadPoolExecutor):
        stop = threading.Event()
        try:
            call = (_work_until, stop.is_set, function, shared)
            return _collect(executor.submit, call, chunks, bar)
        finally:
            stop.set()
    return _collect(executor.submit, (_work, function, shared), chunks, bar)


def _work(function: Callable, shared: object, chunk: object) -> object:
    """What a worker runs: the workers share the cores, so each keeps to one thread.

    ``MKSKNN_WORKER_THREADS`` in a worker's environment allows it more threads of our own.
    """
    with limit_threads(int(os.environ.get(WORKER_THREADS, "1"))), one_thread_each():
        return function(shared, chunk)


def _work_until(
    stopping: Callable[[], bool], function: Callable, shared: object, chunk: object
) -> object:
    with _having(_stopping, stopping):
        return _work(function, shared, chunk)


@contextlib.contextmanager
def _spooled(shared: object) -> Iterator[str]:
    """A file that holds `shared` while the sweep lasts."""
    with tempfile.TemporaryDirectory(prefix="mksknn-") as folder:
        path = os.path.join(folder, "shared.pickle")
        with open(path, "wb") as file:
            pickle.dump(shared, file, protocol=pickle.HIGHEST_PROTOCOL)
        yield path


def _work_spooled(function: Callable, path: str, chunk: object) -> object:
    # a file that is gone tells a worker in the middle of a chunk that its parent has given up
    return _work_until(lambda: not os.path.exists(path), function, _load(path), chunk)


@functools.lru_cache(maxsize=1)
def _load(path: str) -> object:
    """What the parent spooled; a worker reads it once."""
    return pickle.loads(Path(path).read_bytes())


def _on_dask(
    client: Any, function: Callable, shared: object, chunks: Sequence, bar: Progress
) -> list:
    """Chunks on Dask workers, the data as the result of a task.

    The scheduler keeps what each task was made of, so it runs any of them again, that of the data
    too, when a worker dies, whatever the moment. (Scattered data are lost with their worker, and
    ``scatter`` waits for ever if one dies while they are on their way.)
    """
    import dask

    if getattr(client, "status", None) == "closed":  # its own error names no argument
        raise ValueError(f"executor takes no more work: {client!r} is closed")
    if getattr(client, "asynchronous", False):  # waiting here would stop the loop it needs
        raise ValueError(
            "executor must be a Dask client with asynchronous=False, called from a thread without "
            f"its event loop; got {client!r}"
        )
    submit = functools.partial(client.submit, pure=False)
    blob = pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)
    # its warning of large graphs recommends scatter
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1PB"}):
        data = _submit(submit, pickle.loads, blob)
    return _collect(submit, (_work, function, data), chunks, bar, _patience(client))


_PATIENCE = 300.0  # seconds without any worker; a cluster that grows on demand takes minutes
_LOOK = 2.0  # seconds between two looks at the cluster


def _patience(client: Any) -> Callable[[], None]:
    """What ends the wait for a Dask cluster that has no workers."""
    alone_since: float | None = None

    def check() -> None:
        nonlocal alone_since
        now = time.monotonic()
        if client.scheduler_info()["workers"]:
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > _PATIENCE:
            raise TimeoutError(
                f"executor: the Dask cluster has had no worker for {_PATIENCE:.0f} seconds; "
                "start some, or call without an executor"
            )

    return check


def _submit(submit: Callable, *call: object) -> Any:
    """``submit(*call)``, if it makes a future."""
    try:
        future = submit(*call)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise ValueError(f"executor takes no more work: {error}") from error
    if not all(hasattr(future, name) for name in ("result", "cancel", "add_done_callback")):
        raise TypeError(
            "executor must have a submit method that returns futures (with result, cancel and "
            f"add_done_callback); it returned {type(future).__name__}"
        )
    return future


def _collect(
    submit: Callable,
    call: tuple,
    chunks: Sequence,
    bar: Progress,
    check: Callable[[], None] | None = None,
) -> list:
    """Submit every chunk and gather the results in order; cancel the rest if one fails.

    `check`, if given, is called now and then while there is nothing to gather.
    """
    futures: list[Any] = []
    finished: queue.SimpleQueue = queue.SimpleQueue()
    try:
        for chunk in reversed(chunks):
            futures.append(_submit(submit, *call, chunk))
            futures[-1].add_done_callback(finished.put)
        for _ in futures:
            _result(_next(finished, check), check)  # what failed is raised now, not in its turn
            bar.update()
        return [_result(future, check) for future in reversed(futures)]
    except BaseException:
        for future in futures:
            with contextlib.suppress(Exception):  # of a client that was closed meanwhile
                future.cancel()
        raise


def _next(finished: queue.SimpleQueue, check: Callable[[], None] | None) -> Any:
    while True:
        with contextlib.suppress(queue.Empty):
            return finished.get(timeout=_LOOK)
        if check is not None:
            check()


def _result(future: Any, check: Callable[[], None] | None) -> Any:
    """The result of a future that was done: it may be lost with its worker, and computed again."""
    if check is None:
        return future.result()
    import asyncio  # Dask has done so

    while True:
        try:
            return future.result(timeout=_LOOK)
        except (TimeoutError, asyncio.TimeoutError):  # not the same before Python 3.11
            if future.status == "error":  # of the task itself
                raise
        check()


# ---------------------------------------------------------------------------------------------
# Progress


class Progress:
    """What a call says about how far it is; without a bar, nothing."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar
        self._lock = threading.Lock()

    def update(self, steps: int = 1) -> None:
        """So many steps further."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(steps)

    def say(self, text: str) -> None:
        """Show a few words behind the bar, such as "k left: 14"."""
        if self._bar is not None:
            with self._lock:
                self._bar.set_postfix_str(text)


@contextlib.contextmanager
def progress_bar(description: str, total: int | None, progress: bool) -> Iterator[Progress]:
    """A bar for one phase of a call, silent unless `progress`."""
    if not progress:
        yield Progress()
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs tqdm: pip install tqdm") from error
    # nothing to be said of a share or of a speed where steps are of all sizes and nobody knows
    # how many there will be
    form = "{desc}: step {n_fmt} [{elapsed}{postfix}]" if total is None else None
    with tqdm(total=total, desc=description, unit="step", bar_format=form) as bar:
        yield Progress(bar)
