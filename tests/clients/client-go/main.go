// Keeps a copy of the ConfigMaps that match a selector. Prints one line of JSON for each event of client-go, and the
// copy once it contains an object named "sentinel".
//
//	client-go typed|protobuf|dynamic|metadata|retry-watcher SERVER SELECTOR
//
// The first four are shared informers; "typed" reads JSON. client-go's feature gate selects their initial list strategy:
// KUBE_FEATURE_WatchListClient=true streams the initial state, false lists it. TOKEN is a bearer token, which client-go
// sends over TLS only, and CA_FILE the certificates to trust. An empty SERVER takes the default configuration.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: %s typed|protobuf|dynamic|metadata|retry-watcher SERVER SELECTOR", os.Args[0]))
	}
	mode, selector := os.Args[1], os.Args[3]
	config := &rest.Config{Host: os.Args[2], BearerToken: os.Getenv("TOKEN")}
	config.CAFile = os.Getenv("CA_FILE")
	if config.Host == "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
			fail(err)
		}
	}
	config.QPS = -1
	if mode == "retry-watcher" {
		watchAgain(config, selector)
	} else {
		inform(mode, config, selector)
	}
}

// One line of output.
type line struct {
	Event string            `json:"event,omitempty"`
	Key   string            `json:"key,omitempty"`
	RV    string            `json:"rv,omitempty"`
	Items map[string]string `json:"items,omitempty"`
	Cache map[string]string `json:"cache,omitempty"`
}

func (l line) print() {
	text, err := json.Marshal(l)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
