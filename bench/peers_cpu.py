#!/usr/bin/env python3
"""Strobe, PyTorch's scaled_dot_product_attention and ONNX Runtime on the CPU, in one process.

    python3 bench/peers_cpu.py --library build/src/libstrobe.so    prints JSON lines
    python3 bench/peers_cpu.py --library ... --results             and puts them into bench/results

Needs numpy, torch and onnxruntime; a peer that is not installed is left out. All take turns
(A B C A B C ...), the best of each counts, and a ratio is ours over the peer's speed. Everyone
computes from the same numbers, and all outputs are compared before anything is timed. Heads: 8 of
1024 tokens, 4 of 2048, 2 of 4096.

One thread is timed by the CPU time of that thread, which neighbours on the machine do not change.
More threads are timed by the wall clock, in short bursts with pauses between them, because virtual
machines are throttled when all their cores work for long.

ONNX Runtime is the faster of its MultiHeadAttention and its opset-23 Attention; it has no bfloat16
and no backward here. An override of Strobe's SIMD target leaves the peers theirs. GFLOP/s count
visible pairs alone: 4 head_dim per pair forward, 10 backward.
"""

import os

# Where set, these slow the peers' libraries; they are read when a library is loaded.
for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

import argparse
import dataclasses
import datetime
import gc
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import strobe_abi

try:
    import torch
except ImportError:
    torch = None
try:
    import onnx_attention
    import onnxruntime
except ImportError:
    onnxruntime = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS = {1024: 8, 2048: 4, 4096: 2}  # so that one call is short


@dataclasses.dataclass(frozen=True)
class Case:
    head_dim: int
    seqlen: int
    causal: bool
    threads: int
    dtype: str = "f32"
    backward: bool = False

    @property
    def heads(self):
        return HEADS.get(self.seqlen, 2)

    @property
    def name(self):
        parts = [f"d{self.head_dim}", f"s{self.seqlen}", "causal" if self.causal else "full"]
        parts.append("bwd" if self.backward else "fwd")
        if self.dtype != "f32":
            parts.append(self.dtype)
        if self.threads > 1:
            parts.append(f"t{self.threads}")
        return "-".join(parts)

    @property
    def flops(self):
        n = self.seqlen
        pairs = self.heads * (n * (n + 1) // 2 if self.causal else n * n)
        return (10 if self.backward else 4) * self.head_dim * pairs


def all_cases(threads, seqlens):
    cases = []
    for t in threads:
        for d in (64, 128):
            for causal in (False, True):
                cases += [Case(d, s, causal, t) for s in seqlens]
                middle = [s for s in seqlens if s <= 2048]
                cases += [Case(d, s, causal, t, dtype="bf16") for s in middle[-1:]]
                cases += [Case(d, s, causal, t, backward=True) for s in middle]
    return cases


# ---- Numbers ----


def to_bf16(x):
    """float32 -> bfloat16 bits (uint16), to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def aligned(array):
    """A copy that starts on a 64-byte boundary."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def make_inputs(case):
    """q, k, v, dout [1, heads, seqlen, head_dim] in the case's dtype."""
    random = np.random.default_rng(20220527)
    shape = (1, case.heads, case.seqlen, case.head_dim)
    values = (random.standard_normal(shape, np.float32) for _ in range(4))
    return [aligned(to_bf16(x) if case.dtype == "bf16" else x) for x in values]


# ---- Contenders: each gives (run, outputs); outputs() after run() is a list of float32 arrays ----


def strobe_contender(case, inputs, library, kernel, overrides):
    q, k, v, dout = inputs
    n = case.seqlen
    shape = dict(heads=case.heads, seqlen_q=n, seqlen_k=n, head_dim=case.head_dim)
    shape.update(dtype=strobe_abi.DTYPES[case.dtype], layout=strobe_abi.BHSD)
    shape.update(window_right=0 if case.causal else -1)

    def plan(op):
        problem = library.problem(op=op, **shape)
        return strobe_abi.Plan(library, problem, case.threads, kernel, overrides)

    o, lse = aligned(np.zeros_like(q)), np.zeros((1, case.heads, n), np.float32)
    arrays = dict(q=q, k=k, v=v, o=o, lse=lse)
    run = plan(strobe_abi.FORWARD).bind(**arrays)
    outputs = [o]
    if case.backward:
        run()
        outputs = [aligned(np.zeros_like(q)) for _ in range(3)]
        arrays.update(dout=dout, **dict(zip(("dq", "dk", "dv"), outputs)))
        run = plan(strobe_abi.BACKWARD).bind(**arrays)
    return run, lambda: [from_bf16(x) if case.dtype == "bf16" else x.copy() for x in outputs]


def pytorch_contender(case, inputs):
    def tensor(x):
        if case.dtype == "bf16":
            return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(x)

    torch.set_num_threads(case.threads)
    q, k, v, dout = (tensor(x) for x in inputs)
    latest = []

    def forward():
        with torch.inference_mode():
            latest[:] = [attend(q, k, v, is_causal=case.causal)]

    attend = torch.nn.functional.scaled_dot_product_attention
    run = forward
    if case.backward:
        for x in (q, k, v):
            x.requires_grad_(True)
        out = attend(q, k, v, is_causal=case.causal)

        def run():
            latest[:] = torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return run, lambda: [x.detach().float().numpy() for x in latest]


def contenders(case, inputs, args, library):
    """{name: run}, Strobe first, once all of them agree."""
    ours = strobe_contender(case, inputs, library, args.kernel, args.overrides)
    peers = {}
    if torch and "pytorch" in args.peers:
        peers["pytorch"] = pytorch_contender(case, inputs)
    candidates = {}
    if onnxruntime and "onnxruntime" in args.peers and case.dtype == "f32" and not case.backward:
        candidates = onnx_attention.runs(inputs[:3], case.causal, case.threads)
        peers.update({f"onnxruntime {name}": pair for name, pair in candidates.items()})

    ours[0]()
    expected = ours[1]()
    tolerance = 0.02 if case.dtype == "bf16" else 1e-4 if case.backward else 2e-5
    for name, (run, outputs) in peers.items():
        run()
        for a, b in zip(expected, outputs(), strict=True):
            error = float(np.abs(a - b).max() / np.abs(b).max())
            if not error <= tolerance:
                sys.exit(
                    f"{case.name}: {name} gives other results than Strobe: {error:.2g} relative"
                )

    runs = {"strobe": ours[0]}
    if "pytorch" in peers:
        runs["pytorch"] = peers["pytorch"][0]
    if candidates:
        best = min(
            candidates,
            key=lambda name: min(seconds_of(case, candidates[name][0], 1) for _ in range(3)),
        )
        runs["onnxruntime"] = candidates[best][0]
        print(f"{case.name}: onnxruntime's faster operator is {best}", file=sys.stderr)
    return runs


# ---- Timing ----


def seconds_of(case, run, calls):
    clock = time.thread_time if case.threads == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def measure(case, runs, turns):
    """Best seconds of each contender."""
    burst, pause = (0.04, 0.02) if case.threads == 1 else (0.03, 0.2)
    calls = {}
    for name, run in runs.items():
        time.sleep(pause)
        before = time.process_time(), time.thread_time()
        calls[name] = max(1, int(burst / seconds_of(case, run, 1)))
        others = (time.process_time() - before[0]) - (time.thread_time() - before[1])
        if case.threads == 1 and others > 0.1 * (time.thread_time() - before[1]) + 0.002:
            print(
                f"{case.name}: {name} uses other threads than the one that is timed",
                file=sys.stderr,
            )
    best = dict.fromkeys(runs, float("inf"))
    gc.disable()
    for _ in range(turns):
        for name, run in runs.items():
            time.sleep(pause)
            best[name] = min(best[name], seconds_of(case, run, calls[name]))
    gc.enable()
    return best


# ---- Results ----


def cpuinfo(key):
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def git_commit():
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude", "*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def result_line(case, best, args):
    ours = best["strobe"]
    line = {"suite": args.suite, "case": case.name, "metric": "gflops"}
    line["value"] = round(case.flops / ours / 1e9, 2)
    line["ratio"] = {name: round(t / ours, 3) for name, t in best.items() if name != "strobe"}
    versions = {"pytorch": torch, "onnxruntime": onnxruntime}
    line["peers"] = {name: versions[name].__version__ for name in line["ratio"]}
    line["machine"] = cpuinfo("model name")
    clock = cpuinfo("cpu MHz")
    if clock:
        line["clock_mhz"] = round(float(clock))
    line["preset"] = "cpu-peers" + (f" {args.overrides}" if args.overrides else "")
    line["commit"] = args.commit
    line["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return line


def merge_results(path, lines):
    """Replaces the lines of the same case and metric, and appends the others."""

    def key(line):
        return line["case"], line["metric"]

    stored = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    merged = {key(line): line for line in stored}
    merged.update({key(line): line for line in lines})
    new = path.with_suffix(".new")
    new.write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in merged.values())
    )
    new.replace(path)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default=str(ROOT / "build" / "src" / "libstrobe.so"))
    parser.add_argument("--suite", default="cpu-peers", help="name of the suite and of its file")
    parser.add_argument(
        "--results", action="store_true", help="merge into bench/results/SUITE.jsonl"
    )
    parser.add_argument("--results-dir", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--kernel", help="Strobe's kernel by name")
    parser.add_argument("--overrides", help="of Strobe's plan, e.g. target=avx2")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seqlens", type=int, nargs="+", default=list(HEADS))
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--peers", nargs="+", default=["pytorch", "onnxruntime"])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--commit", default=git_commit(), help="default: of this checkout")
    return parser.parse_args()


def main():
    args = parse_arguments()
    library = strobe_abi.Library(args.library)
    lines = []
    for case in all_cases(args.threads, args.seqlens):
        if args.cases not in case.name:
            continue
        try:
            runs = contenders(case, make_inputs(case), args, library)
        except strobe_abi.StrobeError as error:
            sys.exit(f"{case.name}: {error}")
        lines.append(result_line(case, measure(case, runs, args.turns), args))
        print(json.dumps(lines[-1], separators=(",", ":")), flush=True)
    if args.results:
        args.results_dir.mkdir(parents=True, exist_ok=True)
        merge_results(args.results_dir / f"{args.suite}.jsonl", lines)


if __name__ == "__main__":
    main()
