"""Memory that is freed stays with the process, so that the next tensor need not ask the system for it again."""

from __future__ import annotations

import ctypes

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# Larger blocks go back to the system at once: the largest value to which glibc raises its own threshold.
MAPPED_BYTES = 32 << 20
# So much free memory at the top of the heap is kept.
KEPT_BYTES = 1 << 30


def keep_freed() -> bool:
    """Tell glibc's allocator to keep freed blocks below 32 MiB; whether this process has that allocator.

    Networks of the size of the digits study make and free tensors of some hundred kilobytes in every layer, each of
    which costs a page fault per 4 KiB when it was given back and is asked for again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
