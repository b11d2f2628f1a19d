"""Peak memory of a call, by what Linux tells of its process and of the workers that this keeps."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path


class Peak:
    """How much more memory is taken than when this was made, at most."""

    def __init__(self) -> None:
        import psutil

        # what calls before have left to malloc; else a call would take nothing new
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        self._before = {}
        here = psutil.Process()
        for pid in [here.pid, *(worker.pid for worker in here.children(recursive=True))]:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what is there now
                self._before[pid] = _resident(pid, "VmRSS")

    def MB(self) -> float | None:
        """Megabytes; each worker with its own peak. None where no file tells."""
        more = []
        for pid, before in self._before.items():
            with contextlib.suppress(OSError, StopIteration):  # a worker that has ended
                more.append(_resident(pid, "VmHWM") - before)
        return max(sum(more), 0.0) if more else None


def _resident(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
