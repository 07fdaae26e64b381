#!/usr/bin/env python3
"""Runs Go suites of Ginkgo that use controller-runtime's envtest, unmodified, on a folder of control plane programs.

run.py ASSETS [SUITE…]: ASSETS is the folder (of `cache-server assets`, or of kube-apiserver and etcd). Each suite of
suites.txt is built from its Go module below target/envtest. With --failures FILE, ends with 1 if another spec fails than
those that the file lists, or if one of those passes. Prints passes, seconds and the peak memory of the programs.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "target" / "envtest"
GO_FOLDER = HERE.parent.parent / "target" / "clients" / "go"
# Programs whose memory counts.
PROGRAMS = {"kube-apiserver", "etcd"}
# Variable that the processes of a suite inherit.
MARK = "ENVTEST_SUITE"
SUITE_SECONDS = 900


def environment(assets):
    """The environment of the Go tools: the toolchain and the modules of the other Go clients of this repository."""
    own = dict(os.environ, GOTOOLCHAIN="local", GOFLAGS="-modcacherw", KUBEBUILDER_ASSETS=str(assets))
    own.setdefault("GOMODCACHE", str(GO_FOLDER / "mod"))
    own.setdefault("GOCACHE", str(GO_FOLDER / "cache"))
    if (GO_FOLDER / "toolchain/bin").is_dir():
        own["PATH"] = f"{GO_FOLDER / 'toolchain/bin'}:{own['PATH']}"
    return own


def sources(module, env):
    """A writable copy of a module: its suites write beside their sources."""
    copy = FOLDER / "modules" / module.replace("/", "_")
    if not copy.is_dir():
        told = subprocess.run(["go", "mod", "download", "-json", module], env=env, capture_output=True, check=False)
        if told.returncode:
            sys.exit(f"{module} cannot be fetched: {told.stdout.decode()}{told.stderr.decode()}")
        fresh = copy.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(json.loads(told.stdout)["Dir"], fresh)
        # Files of a module are not executable.
        for script in fresh.rglob("*.sh"):
            script.chmod(0o755)
        fresh.rename(copy)
    return copy


def build(module, package, env):
    """Builds the test program of a package, unless it exists. Returns it and its folder."""
    folder = sources(module, env) / package
    program = FOLDER / "bin" / f"{module}/{package}".replace("/", "_")
    if not program.is_file():
        subprocess.run(["go", "test", "-vet=off", "-c", "-o", str(program), "."], cwd=folder, env=env, check=True)
    return program, folder


def peak_memory(suite, peaks):
    """Adds the peak memory in MiB of each running program of a suite's control planes to `peaks`, by process."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "status").read_text()
            started_as = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        name = os.path.basename(started_as)
        if name in PROGRAMS and f"{MARK}={suite}".encode() in variables:
            peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
            if peak:
                peaks[process.name] = (name, int(peak[0]) // 1024)


def run(program, folder, skipped, env):
    """Runs a suite. Returns its specs as {name: (state, message)}, seconds, seconds of its start, and memory."""
    report, log = [program.with_name(f"{program.name}.{form}") for form in ("json", "log")]
    report.unlink(missing_ok=True)
    arguments = ["-test.timeout", f"{SUITE_SECONDS}s", "-ginkgo.timeout", f"{SUITE_SECONDS}s", "-ginkgo.no-color"]
    arguments += [f"-ginkgo.json-report={report}"] + ([f"-ginkgo.skip={skipped}"] if skipped else [])
    env = dict(env, **{MARK: str(program)})
    begun, peaks = time.monotonic(), {}
    with log.open("w") as out:
        suite = subprocess.Popen([program, *arguments], cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
        while suite.poll() is None:
            peak_memory(program, peaks)
            time.sleep(0.1)
    seconds = time.monotonic() - begun
    specs, start = read_specs(report)
    states = {state for state, _ in specs.values()}
    # A suite that ran nothing proves nothing.
    if "failed" not in states and (suite.returncode or "passed" not in states):
        specs["(the suite)"] = ("failed", f"exit code {suite.returncode}, states of specs {sorted(states)}, see {log}")
    return specs, seconds, start, peaks


def read_specs(report):
    """Returns the specs of a report, and the seconds of the suite's start."""
    if not report.is_file():
        return {}, None
    specs, start = {}, None
    for suite in json.loads(report.read_text()):
        for spec in suite.get("SpecReports") or []:
            name = " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec.get("LeafNodeText", "")]).strip()
            if spec["LeafNodeType"] == "BeforeSuite":
                start = spec["RunTime"] / 1e9
            if spec["LeafNodeType"] != "It" and spec["State"] == "passed":
                continue
            state = {"passed": "passed", "skipped": "skipped", "pending": "skipped"}.get(spec["State"], "failed")
            failure = spec.get("Failure") or {}
            specs[name or spec["LeafNodeType"]] = (state, failure.get("Message", ""))
    return specs, start


def listed(path):
    """Lines `suite | spec | reason`."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {tuple(part.strip() for part in line.split(" | ")[:2]) for line in lines}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("assets", type=pathlib.Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--failures", type=pathlib.Path)
    parser.add_argument("--build", action="store_true", help="only build the suites")
    parser.add_argument("--messages", action="store_true", help="print the message of each failure")
    options = parser.parse_args()
    (FOLDER / "bin").mkdir(parents=True, exist_ok=True)
    env = environment(options.assets.resolve())
    known = listed(options.failures) if options.failures else None
    totals, wrong = [0, 0, 0.0], []
    for line in (HERE / "suites.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, module, package, *skipped = line.split(maxsplit=3)
        if options.suites and not any(name.startswith(wanted) for wanted in options.suites):
            continue
        program, folder = build(module, package, env)
        if options.build:
            continue
        specs, seconds, start, peaks = run(program, folder, "".join(skipped), env)
        failed = {spec: message for spec, (state, message) in specs.items() if state == "failed"}
        passed = sum(state == "passed" for state, _ in specs.values())
        memory = {name: max(peak for of, peak in peaks.values() if of == name) for name, _ in peaks.values()}
        started = f", its start {start:.2f} s" if start else ""
        print(f"{name}: {passed} passed, {len(failed)} failed, {seconds:.1f} s{started}, MiB {memory}", flush=True)
        for spec, message in failed.items():
            print(f"  {name} | {spec}" + (f"\n    {message[:1500]}" if options.messages else ""), flush=True)
        totals = [totals[0] + passed, totals[1] + len(failed), totals[2] + seconds]
        if known is not None:
            wrong += [f"fails: {name} | {spec}" for spec in failed if (name, spec) not in known]
            of_suite = {spec for suite, spec in known if suite == name}
            wrong += [f"does not fail any more: {name} | {spec}" for spec in sorted(of_suite - failed.keys())]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]:.0f} s")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


main()
