"""What glibc keeps of freed memory. On other systems nothing here does anything."""

import ctypes
import sys
import time

THRESHOLDS = 32 << 20, 64 << 20  # bytes: the largest that glibc sets by itself, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD


def set_thresholds(mapped: int, trimmed: int) -> None:
    """From how many bytes on glibc maps a block by itself, and returns free memory at the end of the heap."""
    m_trim_threshold, m_mmap_threshold = -1, -3
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "mallopt"):
        libc.mallopt(m_mmap_threshold, mapped)  # type: ignore[union-attr]
        libc.mallopt(m_trim_threshold, trimmed)  # type: ignore[union-attr]


class Heap:
    """The holes that are left between blocks in use, which `prepare_process` keeps for the next step.

    Buffers of many sizes leave ever more of them: a language model's run grew from 2 to 4 GB in 3,000 steps.
    """

    def __init__(self) -> None:
        self._returned = time.monotonic()

    def give_back(self, seconds: float = 60.0) -> bool:
        """Give them to the system, unless that was done in the last `seconds`: what the next step needs of them is slow
        at first. Returns whether it was due."""
        due = time.monotonic() - self._returned >= seconds
        if due:
            self._returned = time.monotonic()
            libc = ctypes.CDLL(None) if sys.platform == "linux" else None
            if hasattr(libc, "malloc_trim"):
                libc.malloc_trim(0)  # type: ignore[union-attr]
        return due
