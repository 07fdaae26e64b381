// Follows all objects of a cluster with gitops-engine's cluster cache, as Argo CD does, with lists in pages.
//
//	gitops-engine KUBECONFIG
//
// Prints the number of kinds after the first synchronization. Then answers each line of standard input with one line for
// each object, of its key and resourceVersion, and an empty line. Logs to standard error.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Argo CD's is 500. A small page makes lists of a test's objects take several.
	pageSize = 20
	// Argo CD's is ten minutes: all types are listed again.
	resyncInterval = 20 * time.Second
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: %s KUBECONFIG", os.Args[0])
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err)
	// Limits of Argo CD: ARGOCD_K8S_CLIENT_QPS, and its double.
	config.QPS, config.Burst = 50, 100
	cluster := cache.NewClusterCache(config,
		cache.SetListPageSize(pageSize),
		cache.SetWatchResyncTimeout(resyncInterval),
		cache.SetBatchEventsProcessing(true),
		// Types that the user may not list are left out.
		cache.SetRespectRBAC(cache.RespectRbacNormal),
	)
	check(cluster.EnsureSynced())
	fmt.Printf("synced kinds=%d\n", cluster.GetClusterInfo().APIsCount)
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var lines []string
		for key, resource := range cluster.FindResources("") {
			lines = append(lines, key.String()+" "+resource.ResourceVersion)
		}
		slices.Sort(lines)
		output := bufio.NewWriter(os.Stdout)
		for _, line := range lines {
			fmt.Fprintln(output, line)
		}
		fmt.Fprintln(output)
		check(output.Flush())
	}
	check(requests.Err())
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, arguments ...any) {
	_, _ = io.WriteString(os.Stderr, fmt.Sprintf(format+"\n", arguments...))
	os.Exit(1)
}
