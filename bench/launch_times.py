"""Time of each kernel launch of a run, without a profiler's access to the GPU.

The run is captured into a CUDA graph; each launch then becomes a graph of its own, a clone without
the others, and is timed alone. Where that fails, PyTorch's profiler is asked.
"""

import ctypes
import statistics
import sys

import torch

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def __call__(self, function, *args):
        error = getattr(self.cuda, function)(*args)
        if error:
            raise RuntimeError(f"{function}: CUDA error {error}")

    def made(self, function, *args):
        """The handle that a function writes to its first argument."""
        handle = ctypes.c_void_p()
        self(function, ctypes.byref(handle), *args)
        return handle


def capture(driver, run, stream):
    driver("cuStreamBeginCapture_v2", stream, RELAXED)
    graph = ctypes.c_void_p()
    try:
        run()
    finally:
        driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def chain_of(driver, graph):
    """The nodes of a captured graph in the order of their execution: one stream, so a chain."""
    count = ctypes.c_size_t()
    driver("cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    driver("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    edges = ctypes.c_size_t()
    driver("cuGraphGetEdges", graph, None, None, ctypes.byref(edges))
    before, after = ((ctypes.c_void_p * max(1, edges.value))() for _ in range(2))
    if edges.value:
        driver("cuGraphGetEdges", graph, before, after, ctypes.byref(edges))
    follows = dict(zip(before[: edges.value], after[: edges.value], strict=True))
    node = next(n for n in nodes if n not in follows.values())
    chain = []
    while node is not None:
        chain.append(node)
        node = follows.get(node)
    if len(chain) != len(nodes):
        raise RuntimeError("the captured launches are not a chain")
    return chain


def only(driver, graph, chain, kept):
    """An executable graph of one node."""
    clone = driver.made("cuGraphClone", graph)
    for node in chain:
        if node != kept:
            twin = driver.made("cuGraphNodeFindInClone", ctypes.c_void_p(node), clone)
            driver("cuGraphDestroyNode", twin)
    executable = driver.made("cuGraphInstantiateWithFlags", clone, ctypes.c_ulonglong(0))
    driver("cuGraphDestroy", clone)
    return executable


def by_graphs(bind, repeats):
    driver = Driver()
    stream = torch.cuda.Stream()
    handle = ctypes.c_void_p(stream.cuda_stream)
    run = bind(stream=stream.cuda_stream)
    run()
    torch.cuda.synchronize()
    graph = capture(driver, run, handle)
    chain = chain_of(driver, graph)
    times = []
    for node in chain:
        executable = only(driver, graph, chain, node)
        run()  # dS replaces P: repeated, it has left numbers of another kind
        samples = []
        for _ in range(4):  # the first warms up
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            for _ in range(repeats):
                driver("cuGraphLaunch", executable, handle)
            end.record(stream)
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) / repeats)
        times.append(statistics.median(samples[1:]))
        driver("cuGraphExecDestroy", executable)
    driver("cuGraphDestroy", graph)
    return times


def by_profiler(bind, repeats):
    run = bind()
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
    kernels = [
        (event.time_range.start, event.time_range.elapsed_us() / 1e3)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    if not kernels or len(kernels) % repeats:
        raise RuntimeError(f"the profiler saw {len(kernels)} launches in {repeats} runs")
    each = [ms for _, ms in sorted(kernels)]
    launches = len(each) // repeats
    return [statistics.median(each[i::launches]) for i in range(launches)]


def launch_times(bind, run_ms):
    """Milliseconds of each launch, in order; bind(stream=...) gives the run. None where unknown."""
    repeats = int(min(50, max(2, 50 / max(run_ms, 1e-3))))
    for method in (by_graphs, by_profiler):
        try:
            return method(bind, repeats)
        except Exception as error:  # a measurement beside others: they go on without it
            print(f"breakdown {method.__name__}: {error}", file=sys.stderr, flush=True)
    return None
