package main

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watchAgain lists, then follows a RetryWatcher, which retries after every error but 410; after a 410 it lists again.
func watchAgain(config *rest.Config, selector string) {
	ctx := context.Background()
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceAll)
	from := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.LabelSelector = selector
		return maps.Watch(ctx, options)
	}}
	for {
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			fail(err)
		}
		held := map[string]string{}
		for _, item := range list.Items {
			held[item.Namespace+"/"+item.Name] = item.ResourceVersion
		}
		line{Event: "RELIST", RV: list.ResourceVersion, Items: held}.print()
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, from)
		if err != nil {
			fail(err)
		}
		if isComplete(held) || applyAll(watcher.ResultChan(), held) {
			line{Cache: held}.print()
			return
		}
	}
}

// applyAll applies events to held until it contains the sentinel, or the watcher stops.
func applyAll(events <-chan watch.Event, held map[string]string) (complete bool) {
	for event := range events {
		if event.Type == watch.Error {
			continue // The watcher closes the channel by itself.
		}
		key, version := describe(event.Object)
		line{Event: string(event.Type), Key: key, RV: version}.print()
		if event.Type == watch.Deleted {
			delete(held, key)
		} else {
			held[key] = version
		}
		if isComplete(held) {
			return true
		}
	}
	return false
}

func isComplete(held map[string]string) bool {
	for key := range held {
		if strings.HasSuffix(key, "/sentinel") {
			return true
		}
	}
	return false
}
