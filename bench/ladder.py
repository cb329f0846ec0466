"""Suite ladder of peers.py: what each step of the papers gained, from standard attention to FA2.

PyTorch's eager attention and our kernels `standard`, `fa1` and `fa2`; bfloat16, batch 4 x 16 heads,
fewer where the score matrices would not fit. Metrics of a case
d<dim>-s<seqlen>-<mask>-<fwd|bwd>-<contender>:

ms            of one pass, called from Python
peak_mb       memory beside the inputs, 10^6 bytes; bwd: of the training step, forward and backward
breakdown_ms  `standard` alone: the sum of its launches, each timed by itself, and `parts`
"""

import gc
import statistics
import sys

import gpu_contenders
import gpu_measure
import strobe_abi
import torch
from launch_times import launch_times

CONTENDERS = ["eager", "standard", "fa1", "fa2"]


def add_arguments(add):
    add("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    add("--batch", type=int, default=4)
    add("--heads", type=int, default=16)
    add("--score-gb", type=float, default=70, help="most 8-byte scores before the batch is halved")
    add("--longest-s", type=float, default=2, help="leave out what would take longer")


def operations(which, causal):
    """What the launches of `standard` are, in order (src/gpu/family_standard.cpp)."""
    scores = ["S = Q K^T"] + ["mask"] * causal + ["softmax"]
    if which == "fwd":
        return scores + ["O = P V"]
    return [f"{x} again" for x in scores] + [
        "dV = P^T dO",
        "dP = dO V^T",
        "dS = P o (dP - D)",
        "dQ = dS K",
        "dK = dS^T Q",
    ]


def batch_of(seqlen, args):
    batch = args.batch
    while batch > 1 and batch * args.heads * seqlen**2 * 8 > args.score_gb * 1e9:
        batch //= 2
    return batch


def make(name, inputs, causal, args, library):
    if name == "eager":
        return gpu_contenders.eager(inputs, causal)
    settings = (inputs, causal, strobe_abi.BHSD, args.device)
    return gpu_contenders.Strobe(library, *settings, name, args.overrides)


def first_run(contender, which, args):
    """Runs a pass for the first time; bytes at its peak beside the inputs."""

    def run():
        if which == "bwd":
            contender.prepare_backward()
            contender.backward()
        else:
            contender.forward()

    run()
    if isinstance(contender, gpu_contenders.Strobe):
        return contender.peak_bytes()  # run() allocates nothing
    if args.torch_device == "cpu":
        return None
    contender.forget()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


class Ladder:
    def __init__(self, args, library, lines, failures, provenance):
        self.args, self.library, self.lines, self.failures = args, library, lines, failures
        self.provenance = provenance
        self.latest = {}  # (contender, mask, pass, dim): (milliseconds, scores)

    def too_slow(self, key, scores):
        if key not in self.latest:
            return False
        ms, before = self.latest[key]
        return ms * scores / before > 1e3 * self.args.longest_s

    def line(self, case, metric, value, extra, shape, clock):
        line = {"suite": self.args.suite, "case": case, "metric": metric, "value": value, **extra}
        line.update(batch=shape[0], heads=shape[1])
        self.lines.append(line | self.provenance(self.args, clock))

    def shape(self, dim, seqlen, causal):
        size = (batch_of(seqlen, self.args), self.args.heads, seqlen, dim)
        inputs = gpu_contenders.tensors(size, self.args.torch_device)
        mask = "causal" if causal else "full"
        expected = {}  # {pass: results} of the first contender
        eager_ms = {}
        for name in self.args.contenders:
            case = f"d{dim}-s{seqlen}-{mask}-{{}}-{name}"
            try:
                self.contender(name, case, inputs, causal, size, expected, eager_ms)
            except (strobe_abi.StrobeError, torch.cuda.OutOfMemoryError) as error:
                self.failures.add(case.format("*"), error)
            gc.collect()
            if self.args.torch_device == "cuda":
                torch.cuda.empty_cache()

    def contender(self, name, case, inputs, causal, size, expected, eager_ms):
        made = make(name, inputs, causal, self.args, self.library)
        scores = size[0] * size[2] ** 2
        for which in self.args.passes:
            key = (name, causal, which, size[3])
            if self.too_slow(key, scores):
                print(f"{case.format(which)}: left out, too slow", file=sys.stderr)
                continue
            if which == "bwd" and name != "eager":
                made.forward()
            peak = first_run(made, which, self.args)
            if self.differs(case.format(which), which, made, expected):
                continue
            run = made.backward if which == "bwd" else made.forward
            ms = self.time(run)
            self.latest[key] = ms, scores
            if name == "eager":
                eager_ms[which] = ms
            self.report(name, case.format(which), which, ms, peak, size, eager_ms, run)
            if name == "standard" and self.args.torch_device == "cuda":
                self.breakdown(made, case.format(which), which, causal, ms, size)

    def time(self, run):
        device = self.args.torch_device
        bursts = (gpu_measure.milliseconds(run, 60, device) for _ in range(self.args.turns))
        return statistics.median(bursts)

    def differs(self, case, which, made, expected):
        """Compares with the first contender's results, which it keeps."""
        results = made.backward_results if which == "bwd" else made.forward_results
        if which not in expected:
            expected[which] = {name: tensor.clone() for name, tensor in results.items()}
            return False
        fault = gpu_measure.disagreement(results, expected[which], LIMITS[which])
        if fault:
            self.failures.add(case, f"results differ from the first contender's: {fault}")
        return bool(fault)

    def report(self, name, case, which, ms, peak, size, eager_ms, run):
        clock = gpu_measure.clock_mhz(run, ms, self.args.torch_device)
        extra = {}
        if name != "eager" and which in eager_ms:
            extra["ratio"] = {"eager": round(eager_ms[which] / ms, 3)}
        self.line(case, "ms", float(f"{ms:.4g}"), extra, size, clock)
        text = f"{case:32} {ms:10.4f} ms"
        if peak is not None:
            self.line(case, "peak_mb", float(f"{peak / 1e6:.5g}"), {}, size, clock)
            text += f"  {peak / 1e6:10.2f} MB"
        print(text, f" {extra.get('ratio', {}).get('eager', 1):.2f}x eager", flush=True)

    def breakdown(self, made, case, which, causal, ms, size):
        bind = made.bind_backward if which == "bwd" else made.bind_forward
        times = launch_times(bind, ms)
        names = operations(which, causal)
        if times is None or len(times) != len(names):
            self.failures.add(case, f"no breakdown: launches {times} for {names}")
            return
        parts = {n: float(f"{t:.4g}") for n, t in zip(names, times, strict=True)}
        self.line(case, "breakdown_ms", float(f"{sum(times):.4g}"), {"parts": parts}, size, None)
        print(" " * 8 + ", ".join(f"{n} {t:.4g}" for n, t in parts.items()), flush=True)


# Eager keeps S in bfloat16, with an error in P of up to 2^-9 |S|: more than the kernels'.
LIMITS = {"fwd": {"all": 0.02, "row": 0.1}, "bwd": {"all": 0.04, "element": 0.1}}


def run(args, library, lines, failures, provenance):
    ladder = Ladder(args, library, lines, failures, provenance)
    masks = {"both": (False, True), "full": (False,), "causal": (True,)}[args.mask]
    for dim in args.dims:
        for causal in masks:
            for seqlen in args.seqs:
                ladder.shape(dim, seqlen, causal)
