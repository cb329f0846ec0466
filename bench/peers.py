#!/usr/bin/env python3
"""Strobe beside PyTorch on one GPU, in one process.

    python3 bench/peers.py --library build/release/src/libstrobe.so        prints a table
    python3 bench/peers.py --library ... --results                        merges into bench/results
    python3 bench/peers.py --library ... --dims 128 --overrides row=full  an experiment
    python3 bench/peers.py --library ... --suite ladder --results         see ladder.py

Suite fa2-h200: bfloat16, batch x seqlen = 16,384 tokens, heads x head_dim = 2,048, forward and
backward, against scaled_dot_product_attention's FlashAttention-2. Contenders take turns (A B A B
...), a burst of launches each, timed by CUDA events; a ratio is the median over the turns, our
speed over the peer's. Outputs are compared before anything is timed. TFLOP/s count 4 B H N N d
forward, 2.5 times that backward, half where causal. Exit code 1: a case was refused or gave other
results.
"""

import argparse
import dataclasses
import datetime
import gc
import math
import pathlib
import statistics
import sys
import time

import gpu_contenders
import gpu_measure
import ladder
import strobe_abi
import torch
from peers_cpu import git_commit, merge_results

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Shape:
    head_dim: int
    seqlen: int
    causal: bool
    batch: int
    heads: int

    def name(self, which):
        return f"d{self.head_dim}-s{self.seqlen}-{'causal' if self.causal else 'full'}-{which}"

    def flops(self, which):
        forward = 4 * self.batch * self.heads * self.seqlen**2 * self.head_dim
        return forward * (0.5 if self.causal else 1) * (2.5 if which == "bwd" else 1)


def all_shapes(args):
    return [
        Shape(d, s, causal, max(1, args.tokens // s), max(1, args.width // d))
        for d in args.dims
        for s in args.seqs
        for causal in {"both": (False, True), "full": (False,), "causal": (True,)}[args.mask]
    ]


class Budget:
    """Spreads what is left of the time over what is left to measure."""

    def __init__(self, seconds, measurements):
        self.end, self.left = time.monotonic() + seconds, measurements

    def burst_ms(self, bursts):
        left = 1e3 * max(0.0, self.end - time.monotonic()) / max(1, self.left)
        self.left -= 1
        return min(150.0, max(10.0, 0.6 * left / bursts))  # the rest is for checks and set-up


class Failures:
    def __init__(self):
        self.count = 0

    def add(self, case, reason):
        self.count += 1
        print(f"{case}: {reason}", file=sys.stderr, flush=True)


def contenders(shape, args, library):
    size = (shape.batch, shape.seqlen, shape.heads, shape.head_dim)
    inputs = gpu_contenders.tensors(size, args.torch_device)
    settings = (inputs, shape.causal, strobe_abi.BSHD, args.device, args.kernel, args.overrides)
    made = {"strobe": gpu_contenders.Strobe(library, *settings)}
    if args.before:
        made["before"] = gpu_contenders.Strobe(args.before, *settings)
    made.update((peer, gpu_contenders.sdpa(inputs, shape.causal, peer)) for peer in args.peers)
    return made


def compare(made, which):
    """What of our results differs from those of any other contender; "" if nothing."""
    limits = {"fwd": gpu_measure.FORWARD_LIMITS, "bwd": gpu_measure.BACKWARD_LIMITS}[which]
    results = "forward_results" if which == "fwd" else "backward_results"
    ours = getattr(made["strobe"], results)
    for name, other in made.items():
        fault = gpu_measure.disagreement(ours, getattr(other, results), limits)
        if fault:
            return f"results differ from {name}'s (not timed): {fault}"
    return ""


def measure(shape, which, made, args, budget, failures):
    """A result line, or None."""
    for contender in made.values():
        if which == "bwd":
            contender.prepare_backward()
            contender.backward()
        else:
            contender.forward()
    burst_ms = budget.burst_ms(len(made) * args.turns)
    fault = compare(made, which)
    if fault:
        failures.add(shape.name(which), fault)
        return None
    runs = {n: c.backward if which == "bwd" else c.forward for n, c in made.items()}
    times = gpu_measure.in_turns(runs, args.turns, burst_ms, args.torch_device)
    ours = statistics.median(times["strobe"])
    line = {"suite": args.suite, "case": shape.name(which), "metric": "tflops"}
    line["value"] = round(shape.flops(which) / ours / 1e9, 1)
    line["ratio"] = {
        name: round(gpu_measure.speed_ratio(times, name), 3) for name in runs if name != "strobe"
    }
    if args.ceiling_tflops:
        line["fraction_of_ceiling"] = round(line["value"] / args.ceiling_tflops, 3)
    line["peers"] = {name: f"pytorch {torch.__version__}" for name in args.peers}
    return line | provenance(args, gpu_measure.clock_mhz(runs["strobe"], ours, args.torch_device))


def provenance(args, clock_mhz):
    line = {"machine": gpu_measure.machine(args.device)}
    if clock_mhz:
        line["clock_mhz"] = clock_mhz
    line["preset"] = args.suite + (f" {args.overrides}" if args.overrides else "")
    line["commit"] = args.commit
    line["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return line


def row_of(line):
    ratios = "  ".join(f"{ratio:5.3f}x {peer}" for peer, ratio in line["ratio"].items())
    clock = line.get("clock_mhz", "?")
    return f"{line['case']:26} {line['value']:7.1f} TFLOP/s  {ratios}  {clock} MHz"


def fa2_suite(args, library, lines, failures):
    shapes = all_shapes(args)
    budget = Budget(args.budget_s, len(shapes) * len(args.passes))
    for shape in shapes:
        try:
            made = contenders(shape, args, library)
            if args.explain:
                print(made["strobe"].plan(strobe_abi.FORWARD).explain(), file=sys.stderr)
            if "fwd" not in args.passes:
                for contender in made.values():  # backward reads O and LSE
                    contender.forward()
            for which in args.passes:
                line = measure(shape, which, made, args, budget, failures)
                if line:
                    lines.append(line)
                    print(row_of(line), flush=True)
        except strobe_abi.StrobeError as error:
            failures.add(shape.name("*"), error)
    summary(lines)


def summary(lines):
    """Geometric mean and worst case, by pass and peer, then by head dimension too."""
    for which in ("fwd", "bwd"):
        chosen = [line for line in lines if line["case"].endswith(which)]
        for peer in chosen[0]["ratio"] if chosen else []:
            ratio = {line["case"]: line["ratio"][peer] for line in chosen}
            worst = min(ratio, key=ratio.get)
            dims = sorted({case.split("-")[0] for case in ratio}, key=lambda d: int(d[1:]))
            parts = [
                f"{d} {geomean(r for c, r in ratio.items() if c.startswith(d + '-')):.3f}"
                for d in dims
            ]
            print(
                f"{which} against {peer}: geometric mean {geomean(ratio.values()):.3f}x "
                f"({', '.join(parts)}), worst {ratio[worst]:.3f}x {worst}, {len(ratio)} cases"
            )


def geomean(values):
    return math.exp(statistics.fmean(math.log(max(x, 1e-9)) for x in values))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--library", default=str(ROOT / "build" / "release" / "src" / "libstrobe.so"))
    add("--suite", choices=["fa2-h200", "ladder"], default="fa2-h200")
    add(
        "--results",
        nargs="?",
        type=pathlib.Path,
        const=ROOT / "bench" / "results",
        metavar="DIR",
        help="merge into DIR/SUITE.jsonl; DIR: bench/results",
    )
    add("--dims", type=int, nargs="+", help="default: 64 128 256; ladder: 64")
    add("--seqs", type=int, nargs="+", help="default: 512 to 16384; ladder: 128 to 16384")
    add("--mask", choices=["both", "full", "causal"], help="default: both; ladder: full")
    add("--passes", nargs="+", choices=["fwd", "bwd"], default=["fwd", "bwd"])
    add("--turns", type=int, default=5)
    add("--budget-s", type=float, default=150, help="seconds to aim at")
    add("--overrides", help="of Strobe's plan, KEY=VALUE,...")
    add("--commit", default=git_commit(), help="default: of this checkout")
    add(
        "--device",
        choices=["cuda", "emulator"],
        default="cuda",
        help="emulator: tries this script at tiny sizes; its times mean nothing",
    )
    group = parser.add_argument_group("fa2-h200").add_argument
    group("--peers", nargs="*", choices=list(gpu_contenders.SDPA_BACKENDS), default=["fa2"])
    group("--before", metavar="LIBRARY", help="another libstrobe.so, as one more contender")
    group("--kernel", default="fa2", help="Strobe's kernel by name; auto: Strobe's choice")
    group("--tokens", type=int, default=16384, help="batch x seqlen")
    group("--width", type=int, default=2048, help="heads x head_dim")
    group("--ceiling-tflops", type=float, help="of the inner loop: adds fraction_of_ceiling")
    group("--explain", action="store_true", help="print each forward plan")
    ladder.add_arguments(parser.add_argument_group("ladder").add_argument)
    args = parser.parse_args()
    args.torch_device = "cuda" if args.device == "cuda" else "cpu"
    return args


DEFAULTS = {
    "fa2-h200": {"dims": [64, 128, 256], "seqs": [512 << i for i in range(6)], "mask": "both"},
    "ladder": {"dims": [64], "seqs": [128 << i for i in range(8)], "mask": "full"},
}


def main():
    args = parse_arguments()
    for name, value in DEFAULTS[args.suite].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.kernel = None if args.kernel == "auto" else args.kernel
    args.before = strobe_abi.Library(args.before) if args.before else None
    library = strobe_abi.Library(args.library)
    gpu_measure.warm_up(args.torch_device)
    gc.disable()  # no pauses between launches; nothing here makes cycles that hold much memory
    lines, failures, start = [], Failures(), time.monotonic()
    try:
        if args.suite == "ladder":
            ladder.run(args, library, lines, failures, provenance)
        else:
            fa2_suite(args, library, lines, failures)
    finally:
        if args.results and lines:
            args.results.mkdir(parents=True, exist_ok=True)
            merge_results(args.results / f"{args.suite}.jsonl", lines)
    print(f"{time.monotonic() - start:.0f} s, {len(lines)} lines, {failures.count} failures")
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
