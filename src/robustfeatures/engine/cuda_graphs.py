"""CUDA graphs: all kernels of a function, recorded once and then launched together.

A step of an attack launches hundreds of kernels. Where they are short, the GPU waits for the host between them. A graph
has the same kernels in the same order, so its result has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

# A function of tensors by name. Its result has the shape of the tensor "images".
Function = Callable[..., Tensor]

# Calls before the recording, in which cuDNN and cuBLAS choose their kernels and allocate their memory.
WARM_UP = 3


class CudaGraph:
    """A function whose kernels are recorded. They read and write the memory of `tensors`, which are copies."""

    def __init__(self, function: Function, tensors: Mapping[str, Tensor], pool: object = None) -> None:
        """Record `images = function(images, ...)`. Graphs that never run at the same time may share a `pool`."""
        self.tensors = {name: values.clone() for name, values in tensors.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function(**self.tensors)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may read images into pinned memory meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):  # type: ignore[arg-type]
            self.tensors["images"].copy_(function(**self.tensors))

    def replay(self) -> None:
        """Call the function once on `tensors`; the result replaces the tensor "images"."""
        self.graph.replay()

    @property
    def pool(self) -> object:
        """The memory of everything that the function computes on the way."""
        return self.graph.pool()


class CudaGraphs:
    """The graphs of one frozen network, whose weights must stay where they are in memory."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, CudaGraph] = {}

    def find(self, key: Hashable, function: Function, tensors: Mapping[str, Tensor]) -> CudaGraph | None:
        """Return the graph of a function, which holds these tensors now; None at the first call with such tensors.

        `key` says which function it is. A graph fits tensors of the same shapes, types and strides only. To record it
        takes as long as some calls, so a batch of a size that comes once is left to the plain way.
        """
        key = key, *((name, values.shape, values.stride(), values.dtype) for name, values in tensors.items())
        if key not in self._seen:
            self._seen.add(key)
            return None
        if key not in self._graphs:
            pool = next((graph.pool for graph in self._graphs.values()), None)
            self._graphs[key] = CudaGraph(function, tensors, pool)
        graph = self._graphs[key]
        for name, values in tensors.items():
            graph.tensors[name].copy_(values)
        return graph
