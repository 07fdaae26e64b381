package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// inform runs a shared informer until it reports the sentinel.
func inform(mode string, config *rest.Config, selector string) {
	informer := informerOf(mode, config, func(options *metav1.ListOptions) { options.LabelSelector = selector })
	done := make(chan struct{})
	told := func(event string, object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj // A relist missed its deletion event: this is its last known state.
		}
		key, version := describe(object)
		line{Event: event, Key: key, RV: version}.print()
		if event == "ADDED" && strings.HasSuffix(key, "/sentinel") {
			close(done)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { told("ADDED", object) },
		UpdateFunc: func(_, object any) { told("MODIFIED", object) },
		DeleteFunc: func(object any) { told("DELETED", object) },
	})
	if err != nil {
		fail(err)
	}
	stop := make(chan struct{})
	go informer.Run(stop)
	<-done
	held := map[string]string{}
	for _, object := range informer.GetStore().List() {
		key, version := describe(object)
		held[key] = version
	}
	line{Cache: held}.print()
	close(stop)
}

func informerOf(mode string, config *rest.Config, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	const all, never = metav1.NamespaceAll, 0
	switch mode {
	case "typed", "protobuf":
		config.ContentType = runtime.ContentTypeJSON
		if mode == "protobuf" {
			config.ContentType = runtime.ContentTypeProtobuf
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		client, tweaked := kubernetes.NewForConfigOrDie(config), informers.WithTweakListOptions(tweak)
		return informers.NewSharedInformerFactoryWithOptions(client, never, tweaked).Core().V1().ConfigMaps().Informer()
	case "dynamic":
		client := dynamic.NewForConfigOrDie(config)
		return dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, never, all, tweak).ForResource(configMaps).Informer()
	case "metadata":
		client := metadata.NewForConfigOrDie(config)
		return metadatainformer.NewFilteredSharedInformerFactory(client, never, all, tweak).ForResource(configMaps).Informer()
	}
	fail(fmt.Errorf("no mode %q", mode))
	return nil
}

// describe returns the key and resourceVersion of any object.
func describe(object any) (key, version string) {
	about, err := meta.Accessor(object)
	if err != nil {
		fail(err)
	}
	return about.GetNamespace() + "/" + about.GetName(), about.GetResourceVersion()
}
