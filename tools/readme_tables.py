#!/usr/bin/env python3
"""Writes the tables of bench/results into README.md, between its two `tables` markers.

usage: tools/readme_tables.py [--check]    --check: change nothing, fail if README.md is out of date
"""
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- tables: begin (tools/readme_tables.py) -->", "<!-- tables: end -->"
PEERS = {"fma_peak": "of the FMA peak"}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(peer, ratio):
    if ratio is None:
        return ""
    return f"{100 * ratio:.0f} %" if peer == "fma_peak" else f"{ratio:.2f}x"


def summary(suite, rows, peers):
    """One line: the geometric mean over the float32 cases, for each peer."""
    parts = []
    for peer in peers:
        ratios = [row["ratio"][peer] for row in rows if peer in row.get("ratio", {}) and "f16" not in row["case"]]
        if ratios:
            parts.append(f"{cell(peer, math.prod(ratios) ** (1 / len(ratios)))} {PEERS.get(peer, peer)}")
    return f"<b>{suite}</b>, {len(rows)} cases; geometric mean in float32: " + ", ".join(parts)


def table(path):
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    if not rows:
        return ""
    peers = list(dict.fromkeys(peer for row in rows for peer in row.get("ratio", {})))
    lines = [f"<details><summary>{summary(path.stem, rows, peers)}</summary>", ""]
    for setting in dict.fromkeys((row["machine"], row["date"], row["commit"]) for row in rows):
        lines.append("{}, {}, commit {}".format(*setting) + "  ")
    header = ["case", "metric", "value"] + [PEERS.get(peer, f"against {peer}") for peer in peers]
    lines += ["", "| " + " | ".join(header) + " |", "|---|---|" + "--:|" * (1 + len(peers))]
    for row in rows:
        ratio = row.get("ratio", {})
        cells = [row["case"], row["metric"], number(row["value"])]
        cells += [cell(peer, ratio.get(peer)) for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + ["", "</details>"]) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    readme = ROOT / "README.md"
    text = readme.read_text()
    tables = filter(None, map(table, sorted((ROOT / "bench" / "results").glob("*.jsonl"))))
    body = "\n".join(tables) or "No results have been recorded yet: `./dev bench cpu-fwd` records some.\n"
    head, rest = text.split(BEGIN)
    new = head + BEGIN + "\n" + body + END + rest.split(END)[1]
    if arguments and new != text:
        sys.exit("README.md is out of date: run tools/readme_tables.py")
    readme.write_text(new)


main(sys.argv[1:])
