"""Keep freed memory in the process, so that the next tensor need not request it from the system again."""

from __future__ import annotations

import ctypes

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# Larger blocks go back to the system at once. glibc raises its own threshold up to this value.
MAPPED_BYTES = 32 << 20
# The free memory that is kept at the top of the heap.
KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Set glibc's allocator to keep freed blocks below 32 MiB. Another allocator stays as it is.

    Every layer of a small network makes and frees tensors of some hundred kilobytes. Each costs a page fault per 4 KiB
    if its memory was returned to the system before.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
