"""The compile decorator, and its cache on disk.

Kernels are serial and release the GIL; threads are Python threads over pieces of work. That way
kernels can be cached on disk (Numba's parallel ones cannot, reliably), no Numba threading layer is
started (its workqueue layer aborts when two threads enter at once), and the answer does not depend
on how many threads share the work.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.dispatcher import Dispatcher

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def kernel(function: Callable) -> Callable:
    """Compile lazily, release the GIL, cache on disk where a cache can be written.

    ``error_model="numpy"`` lets divisions vectorise; fastmath stays off, because kernels decide
    neighbours and evidences. An entrance for C (4 ms of each kernel) is not needed.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiled = njit(**options)(function)
    if isinstance(compiled, Dispatcher):  # not where compiling is switched off
        private: Any = compiled
        private._cache = _LazyCache(function)
        private._compiler.compile = _without_collection(private._compiler.compile)
    return compiled


def interruptible(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """What every public function that calls kernels is: Ctrl-C in a kernel is an interrupt.

    Numba overlooks one that comes while it looks at the arguments or makes arrays of the results,
    and Python then says that an exception was set.
    """

    @functools.wraps(function)
    def entered(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Answer:
        try:
            return function(*arguments, **options)
        except SystemError as error:
            cause: BaseException | None = error
            while isinstance(cause, SystemError):  # one for each function of Numba on the way
                cause = cause.__cause__
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise

    return entered


def _without_collection(compile_: Callable) -> Callable:
    """Compile without looking for garbage: 0.8 of 6.6 s, since Numba leaves many objects alive.

    Numba holds its own lock meanwhile, so two threads are never here at once.
    """

    def paused(*arguments: Any) -> Any:
        if not gc.isenabled():  # as the user wants it, or a kernel inside a kernel
            return compile_(*arguments)
        gc.disable()
        try:
            return compile_(*arguments)
        finally:
            gc.enable()

    return paused


class _LazyCache:
    """The cache of a kernel, set up when the kernel is first called.

    At import it would take a third of the package's share of the time: a folder tried for each
    kernel, and all files read.
    """

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._folder = Path(function.__code__.co_filename).parent
        self._files = _files_at_import(self._folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    @functools.cached_property
    def _opened(self) -> Any:
        # a file that has changed: what is in memory is not what it would be stamped as
        if self._files is not None and self._files == _files(self._folder):
            # no writable place for a cache: a read-only install of a user without a home
            with contextlib.suppress(RuntimeError, OSError):
                return _Cache(self._function)
        return NullCache()


def _files(folder: Path) -> dict[str, tuple[int, int]] | None:
    """Time and size of the Python files in a folder; None where there is none, as in an archive."""
    try:
        with os.scandir(folder) as found:
            files = [(one.name, one.stat()) for one in found if one.name.endswith(".py")]
    except OSError:
        return None
    return {name: (about.st_mtime_ns, about.st_size) for name, about in files}


_files_at_import = functools.cache(_files)


class _Cache(FunctionCache):
    """Numba's cache on disk, without its two faults.

    Numba asks only whether the file of a kernel has changed, not those of the kernels that were
    compiled into it. And whatever is wrong with the files (a disk that is full, half a file or
    rubbish in it) ends the call.
    """

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            self.cache_path, self._impl.filename_base, _stamp(Path(function.__code__.co_filename))
        )

    def load_overload(self, *arguments: Any) -> Any:
        """What is cached; None, as for what is not, if it cannot be read."""
        try:
            return super().load_overload(*arguments)
        except Exception as error:
            _warn(self.cache_path, error)
            try:
                self.flush()  # an empty index, so that this is mended by the next save
            except Exception:
                self.disable()
            return None

    def save_overload(self, *arguments: Any) -> None:
        """Cache it if that is possible."""
        try:
            super().save_overload(*arguments)
        except Exception as error:
            _warn(self.cache_path, error)
            self.disable()


@functools.cache
def _stamp(path: Path) -> str:
    """A hash of a file of the package and of all files that it imports, directly or not."""
    known, waiting = set(), [path]
    while waiting:
        here = waiting.pop()
        if here not in known:
            known.add(here)
            waiting += _imported(here)
    found = hashlib.sha256()
    for one in sorted(known):
        found.update(one.name.encode() + b"\0" + one.read_bytes() + b"\0")
    return found.hexdigest()


@functools.cache
def _imported(path: Path) -> list[Path]:
    """The neighbouring files that a file imports (``from ._file import name``, the one way it does
    so where kernels are, by tests/test_rooms.py).
    """
    names = re.findall(r"^\s*from \.(\w+) import", path.read_text(), re.MULTILINE)
    return [path.with_name(f"{name}.py") for name in names]


_warned = False


def _warn(folder: str, error: Exception) -> None:
    """Say once that a cache does not work."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"the cache of compiled functions in {folder} cannot be used ({type(error).__name__}: "
        f"{error}); they are compiled without it, which takes some seconds. If it happens again, "
        "make room on the disk, or delete the .nbi and .nbc files there",
        RuntimeWarning,
        stacklevel=2,
    )
