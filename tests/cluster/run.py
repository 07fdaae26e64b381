#!/usr/bin/env python3
"""Runs the controllers and the scheduler of Kubernetes, with kwok in place of kubelets, on an API server.

run.py PROGRAMS [--nodes N] [--pods N] [--kills]: PROGRAMS is a folder with kube-apiserver, kube-controller-manager,
kube-scheduler, kwok and kubectl; with an etcd in it that is etcd's own, kube-apiserver is a stock one. A story of
workloads runs first: each step waits until the cluster shows its effect. With --kills the API server is killed before
every fourth step (its objects are on disk): more kills in a row only show the pauses of client-go. Then Deployments make
N pods. Prints the seconds of each, and the memory of the API server with its etcd. Ends with 1 at the first step that has
no effect in time.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
UP = HERE.parent.parent / "examples" / "simulated-cluster" / "up"
STEP_SECONDS = 300
ALL_SECONDS = 1800
# Deployments that share the pods of the measurement.
DEPLOYMENTS = 20
BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
          "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "web"}}}}


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


class Cluster:
    """The programs, started by the recipe for people."""

    def __init__(self, programs, nodes, folder):
        self.programs, self.folder, self.etcd = programs, folder, None
        port, *etcd_ports = free_ports(3)
        self.env = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", PORT=str(port),
                        KWOK_STAGES=str(programs / "kwok-stages.yaml"))
        if (programs / "etcd").exists():
            client, peer = (f"http://127.0.0.1:{number}" for number in etcd_ports)
            self.env["ETCD"] = client
            self.etcd = subprocess.Popen(
                [programs / "etcd", f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={client}",
                 f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", "--log-level=error"])
        self.up = subprocess.Popen([UP, folder / "up", str(nodes)], env=self.env, stdout=subprocess.PIPE, text=True)
        self.env["KUBECONFIG"] = self.up.stdout.readline().strip()
        if not self.env["KUBECONFIG"]:
            self.end()
            sys.exit("the cluster did not start")

    def kubectl(self, *arguments, given=None, may_fail=False):
        done = subprocess.run(["kubectl", *arguments], env=self.env, input=given, capture_output=True, text=True,
                              check=False, timeout=STEP_SECONDS)
        if done.returncode and not may_fail:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def pid(self, name):
        return int((self.folder / "up" / f"{name}.pid").read_text())

    def kill(self):
        """Kills the API server, which is started again, and waits until that one serves."""
        before = self.pid("kube-apiserver")
        os.kill(before, signal.SIGKILL)
        until("the API server is back", lambda: self.pid("kube-apiserver") != before
              and self.kubectl("get", "--raw=/readyz", may_fail=True) == "ok")

    def memory(self):
        """Peak of the API server's memory, with that of its etcd, in MiB."""
        def peak(pid):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) // 1024
        own = peak(self.pid("kube-apiserver"))
        return f"{own} MiB" if self.etcd is None else f"{own} MiB and etcd {peak(self.etcd.pid)} MiB"

    def end(self):
        for program in filter(None, [self.up, self.etcd]):
            program.terminate()
            program.wait()


def until(what, holds, seconds=STEP_SECONDS):
    """Waits until `holds()` is true. Returns the seconds."""
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return time.monotonic() - started


def steps(cluster):
    """The story: pairs of a name, a command or commands, and the condition that they bring about."""
    def count(kind, condition, *options):
        # A restart of the API server may lie between.
        found = json.loads(cluster.kubectl("get", kind, *options, "--output=json", may_fail=True) or '{"items": []}')
        return sum(condition(item) for item in found["items"])

    def running(pod):
        return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]

    def image(name):
        return lambda pod: running(pod) and pod["spec"]["containers"][0]["image"] == name

    def ready(item):
        return sum(end["conditions"]["ready"] for end in item.get("endpoints") or [])

    def endpoints():
        return count("endpointslices", lambda item: ready(item) == 10, "--selector=kubernetes.io/service-name=web")

    web = "--selector=app=web"
    return [
        ("nodes are ready", [], lambda: count("nodes", lambda node: any(
            item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions", []))) > 0),
        ("a namespace has its account", [["create", "namespace", "story"],
                                         ["config", "set-context", "--current", "--namespace=story"]],
         lambda: count("serviceaccounts", lambda item: item["metadata"]["name"] == "default") == 1
         and count("configmaps", lambda item: item["metadata"]["name"] == "kube-root-ca.crt") == 1),
        ("a Deployment has running pods", [["create", "deployment", "web", "--image=one", "--replicas=10"]],
         lambda: count("pods", running, web) == 10),
        ("a Service has endpoints", [["expose", "deployment", "web", "--port=80"]], lambda: endpoints() == 1),
        ("it shrinks", [["scale", "deployment", "web", "--replicas=6"]], lambda: count("pods", running, web) == 6),
        ("it grows", [["scale", "deployment", "web", "--replicas=10"]], lambda: endpoints() == 1),
        ("it gets another image", [["set", "image", "deployment/web", "one=two"]],
         lambda: count("pods", image("two"), web) == 10 == count("pods", lambda _: True, web)),
        ("it gets its first image again", [["rollout", "undo", "deployment/web"], ["rollout", "status", "deployment/web"]],
         lambda: count("pods", image("one"), web) == 10 == count("pods", lambda _: True, web)),
        ("a StatefulSet has its pods, in order", [["apply", "-f", "-"]],
         lambda: {pod["metadata"]["name"] for pod in json.loads(cluster.kubectl(
             "get", "pods", "--selector=app=store", "--output=json", may_fail=True) or '{"items": []}')["items"]
             if running(pod)} == {"store-0", "store-1", "store-2"}),
        ("a Job completes", [["create", "job", "once", "--image=one"]],
         lambda: count("jobs", lambda job: job["status"].get("succeeded") == 1) == 1),
        ("a CronJob makes Jobs", [["create", "cronjob", "often", "--image=one", "--schedule=* * * * *"]],
         lambda: count("jobs", lambda job: job["metadata"]["name"].startswith("often-")
                       and job["status"].get("succeeded") == 1) > 0),
        ("a node is drained within a budget", [["apply", "-f", "-"], ["drain", "node-0", "--ignore-daemonsets", "--force"]],
         lambda: count("pods", lambda _: True, "--field-selector=spec.nodeName=node-0") == 0
         and count("pods", running, web) == 10),
        ("the namespace goes", [["delete", "namespace", "story"]],
         lambda: count("namespaces", lambda item: item["metadata"]["name"] == "story") == 0),
    ]


STATEFUL_SET = {
    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store"},
    "spec": {"serviceName": "store", "replicas": 3, "selector": {"matchLabels": {"app": "store"}},
             "template": {"metadata": {"labels": {"app": "store"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
GIVEN = {"a StatefulSet has its pods, in order": STATEFUL_SET, "a node is drained within a budget": BUDGET}


def tell_story(cluster, kills):
    for number, (name, commands, holds) in enumerate(steps(cluster)):
        if kills and number % 4 == 3:
            cluster.kill()
        started = time.monotonic()
        for command in commands:
            cluster.kubectl(*command, given=json.dumps(GIVEN[name]) if "-" in command else None)
        until(name, holds)
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)


def measure(cluster, pods):
    """Seconds until Deployments with so many pods are available."""
    cluster.kubectl("create", "namespace", "many")
    started = time.monotonic()
    for index in range(DEPLOYMENTS):
        cluster.kubectl("create", "deployment", f"d{index}", "--namespace=many", "--image=i",
                        f"--replicas={pods // DEPLOYMENTS}")

    def available():
        shown = cluster.kubectl("get", "deployments", "--namespace=many",
                                "--output=jsonpath={.items[*].status.availableReplicas}", may_fail=True)
        return sum(map(int, shown.split())) == pods // DEPLOYMENTS * DEPLOYMENTS

    until("all pods run", available, ALL_SECONDS)
    print(f"{pods} pods run: {time.monotonic() - started:.1f} s; kube-apiserver peak {cluster.memory()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--kills", action="store_true")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="simulated-cluster-"))
    started = time.monotonic()
    cluster = Cluster(options.programs.resolve(), options.nodes, folder)
    try:
        print(f"{options.nodes} nodes exist: {time.monotonic() - started:.1f} s", flush=True)
        tell_story(cluster, options.kills)
        if options.pods:
            measure(cluster, options.pods)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        for log in sorted((folder / "up").glob("*.log")):
            print(f"{log.name}:\n{''.join(log.read_text().splitlines(keepends=True)[-20:])}", file=sys.stderr)
        sys.exit(1)
    finally:
        cluster.end()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
