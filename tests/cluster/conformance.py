#!/usr/bin/env python3
"""Runs conformance cases of Kubernetes' end-to-end tests on a simulated cluster: those of the API machinery, of
authentication and authorization, of workloads and of the network.

conformance.py PROGRAMS E2E [--failures FILE] [--at-once N]: PROGRAMS as for run.py; E2E is the program `e2e.test`. Each
case is a process of its own. With --failures FILE, ends with 1 if another case fails than those that the file lists, or if
one of those passes. Prints the counts, and each case that failed.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import run

CASES = r"\[sig-(api-machinery|auth|apps|network)\].*\[Conformance\]"
# Cases that wait for what a container does wait for minutes; all others take less on a busy machine.
CASE_SECONDS = 100


def cases(e2e):
    """Names of the cases."""
    told = subprocess.run([e2e, "--ginkgo.dry-run", "--ginkgo.v", "--ginkgo.no-color", f"--ginkgo.focus={CASES}"],
                          capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"^\[sig-.*\[Conformance\]", told, re.MULTILINE)))


def outcome(e2e, case, kubeconfig, folder):
    """Runs a case. Returns `passes`, or its failure in a line."""
    command = [e2e, "--provider=skeleton", f"--kubeconfig={kubeconfig}", "--ginkgo.no-color", "--minStartupPods=0",
               "--allowed-not-ready-nodes=-1", "--disable-log-dump", f"--ginkgo.focus={re.escape(case)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CASE_SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"not within {CASE_SECONDS} s"
    if "Ran 1 of" not in done.stdout:
        return "did not run"
    if done.returncode == 0:
        return "passes"
    why = re.findall(r"^ *\[FAILED\] (?!in \[)(.*)", done.stdout, re.MULTILINE)
    return why[-1][:200] if why else "failed"


def read_failures(path):
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {line.split(" | ")[0] for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("e2e", type=pathlib.Path)
    parser.add_argument("--failures", type=pathlib.Path)
    parser.add_argument("--at-once", type=int, default=5)
    options = parser.parse_args()
    folder, e2e = pathlib.Path(tempfile.mkdtemp(prefix="simulated-cluster-")), options.e2e.resolve()
    cluster = run.Cluster(options.programs.resolve(), 3, folder)
    try:
        names = cases(e2e)
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            found = dict(zip(names, pool.map(lambda case: outcome(e2e, case, cluster.env["KUBECONFIG"], folder), names)))
    finally:
        cluster.end()
    shutil.rmtree(folder)
    failed = {case: why for case, why in found.items() if why != "passes"}
    for case, why in failed.items():
        print(f"{case} | {why}")
    print(f"{len(found) - len(failed)} of {len(found)} cases pass", flush=True)
    if options.failures:
        listed = read_failures(options.failures)
        for case in sorted(failed.keys() ^ listed):
            print(f"{'fails' if case in failed else 'passes'}, unlike its line: {case}", file=sys.stderr)
        sys.exit(failed.keys() != listed)


main()
