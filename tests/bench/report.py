# SPDX-License-Identifier: Apache-2.0
"""Tables of what tests/bench/compare has measured."""

import statistics


def median(samples):
    return statistics.median(samples) if samples else None


def number(value):
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(workload, ours, theirs):
    """How many times better we are: above 1 is better for rates and for times alike."""
    if not ours or not theirs:
        return None
    return ours / theirs if workload.better == "high" else theirs / ours


def rows(workloads, targets, samples):
    """For each workload: its name with the unit, the medians, and our ratio to each other target."""
    others = [target for target in targets if target != "sluicefs"]
    for key, workload in workloads.items():
        medians = {target: median(samples.get((key, target), [])) for target in targets}
        if all(value is None for value in medians.values()):
            continue
        ratios = {target: ratio(workload, medians.get("sluicefs"), medians[target]) for target in others}
        yield f"{workload.name} ({workload.unit})", medians, ratios


def columns(targets):
    others = [target for target in targets if target != "sluicefs"]
    compared = [f"vs {target}" for target in others] if "sluicefs" in targets else []
    return list(targets) + compared


def cells(targets, medians, ratios):
    line = [number(medians[target]) for target in targets]
    if "sluicefs" in targets:
        line += ["-" if value is None else f"{value:.2f} x" for value in ratios.values()]
    return line


def text_table(workloads, targets, samples):
    table = [["median"] + columns(targets)]
    for name, medians, ratios in rows(workloads, targets, samples):
        table.append([name] + cells(targets, medians, ratios))
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = []
    for line in table:
        padded = [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        lines.append("  ".join(padded))
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def markdown_table(workloads, targets, samples):
    head = ["sluicefs against"] + [target for target in targets if target != "sluicefs"]
    if "sluicefs" not in targets:
        head = ["median"] + list(targets)
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name, medians, ratios in rows(workloads, targets, samples):
        values = cells(targets, medians, ratios)
        values = values[len(targets):] if "sluicefs" in targets else values
        lines.append("| " + " | ".join([name] + values) + " |")
    return "\n".join(lines) + "\n"
