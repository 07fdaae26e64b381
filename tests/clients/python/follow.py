"""Keeps a copy of the ConfigMaps that match a selector. Prints one line of JSON for each event, and the copy once it
contains an object named "sentinel".

    follow.py LIMIT SERVER SELECTOR

It lists, in pages of LIMIT unless that is 0, and watches from there. The library's Watch resumes by itself when a watch
ends. When its connection breaks, the caller resumes from Watch.resource_version; after a 410, the caller lists again. A
server that is not available says when to come back. An empty SERVER takes the default configuration.
"""

import contextlib
import json
import sys
import time

import urllib3
from kubernetes import client, config, watch


def main(limit, server, selector):
    if not server:
        # The library prints that it found no kubeconfig.
        with contextlib.redirect_stdout(sys.stderr):
            config.load_config()
    maps = client.CoreV1Api(client.ApiClient(client.Configuration(host=server) if server else None))
    held, version = relist(maps, selector, limit)
    while not is_complete(held):
        watching = watch.Watch()
        try:
            follow(watching, maps, selector, held, version)
        except client.ApiException as error:
            if error.status in (503, 504):
                time.sleep(float(error.headers["Retry-After"]))
            elif error.status == 410:
                held, version = relist(maps, selector, limit)
            else:
                raise
        except urllib3.exceptions.HTTPError:
            version = watching.resource_version
    say(cache=held)


def relist(maps, selector, limit):
    """Returns the whole state and its position."""
    pages = {"limit": limit} if limit else {}
    held = {}
    while True:
        try:
            page = maps.list_config_map_for_all_namespaces(label_selector=selector, **pages)
        except client.ApiException as error:
            if error.status not in (503, 504):
                raise
            time.sleep(float(error.headers["Retry-After"]))
            continue
        except urllib3.exceptions.HTTPError:
            time.sleep(0.02)
            continue
        held.update((key_of(item), item.metadata.resource_version) for item in page.items)
        pages["_continue"] = page.metadata._continue
        if not page.metadata._continue:
            say(event="RELIST", rv=page.metadata.resource_version, items=held)
            return held, page.metadata.resource_version


def follow(watching, maps, selector, held, version):
    """Applies events until the copy contains the sentinel."""
    every = maps.list_config_map_for_all_namespaces
    for event in watching.stream(every, label_selector=selector, resource_version=version, allow_watch_bookmarks=True):
        if event["type"] == "BOOKMARK":
            continue
        item = event["object"]
        key, now = key_of(item), item.metadata.resource_version
        say(event=event["type"], key=key, rv=now)
        if event["type"] == "DELETED":
            held.pop(key, None)
        else:
            held[key] = now
        if is_complete(held):
            watching.stop()


def is_complete(held):
    return any(key.endswith("/sentinel") for key in held)


def key_of(item):
    return f"{item.metadata.namespace}/{item.metadata.name}"


def say(**line):
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
