"""Medians over rounds as a Markdown table: rate over the floor's of the same round, CPU and WAL per job.

python report.py results.jsonl
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any


def main(path: str) -> None:
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    floor: dict[tuple[str, int], float] = {}
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        rows[row["cell"], row["layout"]].append(row)
        if row["layout"] == "floor":
            floor[row["cell"], row["round"]] = row["rate"]
    print("| scenario | layout | rate / floor (min-max) | client us | server us | WAL B |")
    print("|---|---|---|---|---|---|")
    for (cell, layout), runs in rows.items():
        if "client_us" not in runs[0]:
            continue
        ratios = [r["rate"] / floor[cell, r["round"]] for r in runs if (cell, r["round"]) in floor]
        ratio = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-"
        client, server, wal = (median(r[k] for r in runs) for k in ("client_us", "server_us", "wal"))
        print(f"| {cell} | {layout} | {ratio} | {client:.1f} | {server:.1f} | {wal:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1])
