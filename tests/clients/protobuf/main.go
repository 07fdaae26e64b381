// Compares protobuf answers with JSON ones. Creates random objects of every built-in kind of k8s.io/api, as Kubernetes'
// own fuzzers make them, and reads each of them in both encodings, alone and in a list. Decoded by client-go, both must
// be equal.
//
//	protobuf SERVER OBJECTS SEED
//	protobuf compare SERVER KUBE_APISERVER TOKEN CA_FILE
//
// OBJECTS is the number of objects of each kind that it tries to create. A server may refuse some of them. The second form
// creates none: it compares the protobuf answers of two servers.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"
)

// Types whose random objects would change the server: its namespaces, and who may read.
var notCreated = []string{"Namespace", "Event"}

// Sent to servers that want one.
var token string

// Reads of a list of one kind, a second apart, while a server changes its objects.
const attempts = 20

func main() {
	if len(os.Args) == 6 && os.Args[1] == "compare" {
		token = os.Args[4]
		compareServers(os.Args[2], os.Args[3], os.Args[5])
		return
	}
	if len(os.Args) != 4 {
		fail("usage: %s SERVER OBJECTS SEED, or %s compare SERVER KUBE_APISERVER TOKEN CA_FILE", os.Args[0], os.Args[0])
	}
	count, err := strconv.Atoi(os.Args[2])
	check(err)
	seed, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	config := &rest.Config{Host: os.Args[1], QPS: -1}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	check(err)
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs)
	kinds, objects, refused := 0, 0, map[string]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		check(err)
		for _, resource := range list.APIResources {
			kind := version.WithKind(resource.Kind)
			isStored := slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "create")
			isSkipped := slices.Contains(notCreated, resource.Kind) || strings.Contains(resource.Name, "/")
			if isSkipped || !isStored || !scheme.Scheme.Recognizes(kind) {
				continue
			}
			created, reason := compare(os.Args[1], kind, resource, filler, count)
			if created == 0 {
				refused[kind.String()] = reason
				continue
			}
			kinds++
			objects += created
		}
	}
	for kind, reason := range refused {
		fmt.Printf("refused: %s: %.200s\n", kind, reason)
	}
	fmt.Printf("kinds=%d objects=%d refused=%d\n", kinds, objects, len(refused))
}

// compareServers compares the lists of all kinds that client-go knows, in protobuf.
func compareServers(server, genuine, authority string) {
	text, err := os.ReadFile(authority)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	http.DefaultClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	config := &rest.Config{Host: genuine, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}, QPS: -1}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	check(err)
	kinds, objects := 0, 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		check(err)
		for _, resource := range list.APIResources {
			isListed := slices.Contains(resource.Verbs, "list") && !strings.Contains(resource.Name, "/")
			if !isListed || !scheme.Scheme.Recognizes(version.WithKind(resource.Kind)) {
				continue
			}
			path := "/apis/" + list.GroupVersion + "/" + resource.Name
			if version.Group == "" {
				path = "/api/" + version.Version + "/" + resource.Name
			}
			count := sameLists(server+path, genuine+path)
			if count == 0 {
				fmt.Printf("no objects: %s\n", path)
				continue
			}
			kinds++
			objects += count
		}
	}
	fmt.Printf("kinds=%d objects=%d\n", kinds, objects)
}

// sameLists compares two lists, and returns the number of their objects.
func sameLists(url, other string) int {
	for attempt := 1; ; attempt++ {
		ours, err := meta.ExtractList(read(url, runtime.ContentTypeProtobuf))
		check(err)
		theirs, err := meta.ExtractList(read(other, runtime.ContentTypeProtobuf))
		check(err)
		if slices.EqualFunc(ours, theirs, isEqual) {
			return len(ours)
		}
		if attempt == attempts {
			for index := range min(len(ours), len(theirs)) {
				if !isEqual(ours[index], theirs[index]) {
					fail("%s differs:\nours:   %s\ntheirs: %s", url, shown(ours[index]), shown(theirs[index]))
				}
			}
			fail("%s: %d objects, %s: %d", url, len(ours), other, len(theirs))
		}
		time.Sleep(time.Second)
	}
}

// isEqual compares two objects. Embedded JSON has escapes of either server's choice.
func isEqual(ours, theirs runtime.Object) bool {
	return equality.Semantic.DeepEqual(ours, theirs) || shown(ours) == shown(theirs)
}

// compare creates objects of a kind and compares their encodings. Returns how many were created, and why one was not.
func compare(
	server string, kind schema.GroupVersionKind, resource metav1.APIResource, filler *randfill.Filler, count int,
) (created int, reason string) {
	path := "/apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	if resource.Namespaced {
		path += "/namespaces/default"
	}
	path += "/" + resource.Name
	for number := range count {
		object, err := scheme.Scheme.New(kind)
		check(err)
		filler.Fill(object)
		about, err := meta.Accessor(object)
		check(err)
		name := fmt.Sprintf("fuzzed-%d", number)
		prepare(about, name)
		object.GetObjectKind().SetGroupVersionKind(kind)
		body, err := json.Marshal(object)
		check(err)
		code, answer := send("POST", server+path, runtime.ContentTypeJSON, body)
		if code != http.StatusCreated {
			reason = string(answer)
			continue
		}
		created++
		one := path + "/" + name
		if slices.Contains(resource.Verbs, "update") {
			// A create drops the status. A type without one answers 404.
			send("PUT", server+one+"/status", runtime.ContentTypeJSON, body)
		}
		same(server + one)
		same(server + one + "?resourceVersion=0")
	}
	if created > 0 {
		same(server + path)
		same(server + path + "?resourceVersion=0")
	}
	return created, reason
}

// prepare replaces the metadata that a server sets or acts upon.
func prepare(about metav1.Object, name string) {
	about.SetName(name)
	about.SetNamespace("")
	about.SetGenerateName("")
	about.SetUID("")
	about.SetResourceVersion("")
	about.SetSelfLink("")
	about.SetGeneration(1)
	about.SetDeletionTimestamp(nil)
	about.SetDeletionGracePeriodSeconds(nil)
	about.SetFinalizers(nil)
	about.SetOwnerReferences(nil)
	about.SetManagedFields(nil)
}

// same reads a path in both encodings and compares what client-go decodes.
func same(url string) {
	text, message := read(url, runtime.ContentTypeJSON), read(url, runtime.ContentTypeProtobuf)
	if equality.Semantic.DeepEqual(text, message) {
		return
	}
	fail("%s differs:\nJSON:     %s\nprotobuf: %s", url, shown(text), shown(message))
}

func read(url, contentType string) runtime.Object {
	code, body := send("GET", url, contentType, nil)
	if code != http.StatusOK {
		fail("GET %s as %s: %d %s", url, contentType, code, body)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		fail("%s as %s: %v", url, contentType, err)
	}
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object
}

// send returns the code and the body of an answer, which must be of the accepted type.
func send(method, url, accept string, body []byte) (int, []byte) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	check(err)
	request.Header.Set("Accept", accept)
	request.Header.Set("Content-Type", runtime.ContentTypeJSON)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	check(err)
	if found := response.Header.Get("Content-Type"); response.StatusCode == http.StatusOK && found != accept {
		fail("%s %s: %s, not %s", method, url, found, accept)
	}
	return response.StatusCode, answer
}

func shown(object runtime.Object) string {
	text, err := json.Marshal(object)
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
