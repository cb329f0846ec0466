"""Timing, clocks and comparison of outputs for benchmarks on one GPU, through PyTorch.

With device "cpu" they work on the host, so that the benchmarks can be tried on the emulator.
"""

import statistics
import subprocess
import time

import torch


def milliseconds(run, target_ms, device):
    """Median over about target_ms of back-to-back calls of run(), which has run before."""
    if device == "cpu":
        start = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - start)

    def timed(count):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for begin, end in events:
            begin.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]

    torch.cuda.synchronize()
    once = timed(1)[0]
    count = int(min(200, target_ms / max(once, 1e-3)))
    return once if count < 2 else statistics.median(timed(count))


def in_turns(runs, turns, target_ms, device):
    """{name: milliseconds of each turn}: A B A B, since a power limit makes the clock drift."""
    times = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            times[name].append(milliseconds(run, target_ms, device))
    return times


def speed_ratio(times, peer, ours="strobe"):
    """Our speed over the peer's: the median over turns of neighbouring samples."""
    return statistics.median(b / a for a, b in zip(times[ours], times[peer], strict=True))


def warm_up(device, seconds=1.0):
    """Raises the GPU's clock from idle."""
    if device == "cpu":
        return
    x = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()


def clock_mhz(run, ms, device):
    """The SM clock while run(), of about `ms` milliseconds, is repeated; None where unknown."""
    if device == "cpu":
        return None
    for _ in range(int(min(5000, 250 / max(ms, 1e-3))) + 1):
        run()
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout
        mhz = int(float(text.splitlines()[torch.cuda.current_device()]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        mhz = None
    torch.cuda.synchronize()
    return mhz


def machine(device):
    return torch.cuda.get_device_name() if device == "cuda" else "emulator"


# ---- Comparison: bfloat16 outputs of two correct kernels differ by roundings of O, P and dS ----

FORWARD_LIMITS = {"all": 0.01, "row": 0.03}
BACKWARD_LIMITS = {"all": 0.02, "element": 0.05}


def errors(ours, theirs):
    """Relative: over all, of the worst row (head_dim elements), of elements to the largest one."""
    a, b = ours.float(), theirs.detach().float()
    difference = a - b
    rows = difference.norm(dim=-1) / b.norm(dim=-1)
    return {
        "all": float(difference.norm() / b.norm()),
        "row": float(rows.max()),  # NaN if any is
        "element": float(difference.abs().max() / b.abs().max()),
    }


def disagreement(ours, theirs, limits):
    """ "" if the tensors of two dicts agree, else what does not."""
    faults = []
    for name, tensor in theirs.items():
        found = errors(ours[name], tensor)
        for kind, limit in limits.items():
            if not found[kind] <= limit:  # NaN fails
                faults.append(f"{name}: {kind} differs by {found[kind]:.2g}, limit {limit}")
    return "; ".join(faults)
