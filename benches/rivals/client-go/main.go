// Follows the pods of a server with one shared informer of client-go. Executes commands from stdin line by line, and
// prints one line of JSON for each, like the other clients of `rivals` (../src/client.rs).
//
//	client-go --url=SERVER [--handlers=N] [--protobuf] [--trimmed]
//
// `sync` starts the informer, and reports once each handler has the initial state. `now` reports the CPU time and the
// changes so far. Each handler reads the name and the node of each pod. With --trimmed a transform clears
// managedFields before the store, as programs with client-go do.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Pause before memory is measured, as in the other clients.
const settling = 2 * time.Second

// The report of a command: `Report` in ../src/client.rs.
type report struct {
	Objects      int     `json:"objects"`
	FirstMs      float64 `json:"first_object_ms"`
	SyncedMs     float64 `json:"synced_ms"`
	Resident     int     `json:"resident"`
	ResidentPeak int     `json:"resident_peak"`
	Live         uint64  `json:"live"`
	LivePeak     uint64  `json:"live_peak"`
	CPU          float64 `json:"cpu_s"`
	Events       uint64  `json:"events"`
	Requests     uint64  `json:"requests"`
	BodyBytes    uint64  `json:"body_bytes"`
	Connections  int     `json:"connections"`
}

// Changes that one handler has received since its initial state.
type component struct {
	changes atomic.Uint64
	names   atomic.Uint64
}

// read stands for the work of a handler.
func (c *component) read(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod := object.(*corev1.Pod)
	c.names.Add(uint64(len(pod.Name) + len(pod.Spec.NodeName)))
}

// Counts requests.
type counting struct {
	next  http.RoundTripper
	count *atomic.Uint64
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.next.RoundTrip(request)
}

func main() {
	url := flag.String("url", "", "server")
	handlers := flag.Int("handlers", 1, "handlers of the informer")
	protobuf := flag.Bool("protobuf", false, "ask for protobuf, as Kubernetes' own components do")
	trimmed := flag.Bool("trimmed", false, "clear managedFields")
	flag.Parse()
	var requests atomic.Uint64
	config := &rest.Config{Host: *url, QPS: -1}
	if *protobuf {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &requests} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	pods := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	if *trimmed {
		if err := pods.SetTransform(withoutManagedFields); err != nil {
			fail(err)
		}
	}
	components := make([]*component, *handlers)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var done report
		switch lines.Text() {
		case "sync":
			done = synced(pods, components)
		case "now":
			done = report{CPU: cpuSeconds(), Events: leastChanges(components)}
		default:
			fail(fmt.Errorf("no such command: %s", lines.Text()))
		}
		done.Requests = requests.Load()
		if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
			fail(err)
		}
	}
}

// synced runs the informer until all handlers have its initial state.
func synced(pods cache.SharedIndexInformer, components []*component) report {
	start, cpu := time.Now(), cpuSeconds()
	var first atomic.Int64
	var registered []cache.ResourceEventHandlerRegistration
	for i := range components {
		c := &component{}
		components[i] = c
		handler, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, isInitial bool) {
				first.CompareAndSwap(0, int64(time.Since(start)))
				c.read(object)
				if !isInitial {
					c.changes.Add(1)
				}
			},
			UpdateFunc: func(_, object any) { c.read(object); c.changes.Add(1) },
			DeleteFunc: func(object any) { c.read(object); c.changes.Add(1) },
		})
		if err != nil {
			fail(err)
		}
		registered = append(registered, handler)
	}
	go pods.Run(make(chan struct{}))
	for _, handler := range registered {
		for !handler.HasSynced() {
			time.Sleep(time.Millisecond)
		}
	}
	done := report{
		SyncedMs: milliseconds(time.Since(start)),
		FirstMs:  milliseconds(time.Duration(first.Load())),
		CPU:      cpuSeconds() - cpu,
		Objects:  len(pods.GetStore().ListKeys()),
	}
	time.Sleep(settling)
	done.Resident, done.ResidentPeak = status("VmRSS:"), status("VmHWM:")
	// The live heap is known only after a collection, which also gives memory back: resident memory is read before.
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	done.Live, done.LivePeak = memory.HeapAlloc, memory.HeapAlloc
	return done
}

func withoutManagedFields(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return object, nil
}

// leastChanges returns the number of changes that every handler has received.
func leastChanges(components []*component) uint64 {
	least := components[0].changes.Load()
	for _, c := range components[1:] {
		least = min(least, c.changes.Load())
	}
	return least
}

// cpuSeconds returns the user and system time of this process.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// status returns a size in bytes from /proc/self/status.
func status(name string) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if size, found := strings.CutPrefix(line, name); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(size), "kB")))
			if err != nil {
				fail(err)
			}
			return kib << 10
		}
	}
	return 0
}

func milliseconds(span time.Duration) float64 { return span.Seconds() * 1e3 }

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
