// Finds out what Kubernetes' own strategies say about objects before they store them.
//
//	validation rows
//	validation random ROWS SEED
//
// `rows` prints those of cache-server/objects/src/validation/rows.txt, whose head says what they mean: each object of
// objects.yaml, and changes of each value in it, as new objects and as updates; and those of cases.txt. `random` prints
// objects with several changes.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"
)

//go:embed objects.yaml
var manifests string

// Changes that matter together: an object's name, `+` or `~` (a new object, an update), and the changes by their paths.
//
//go:embed cases.txt
var cases string

const head = `# What the strategies of Kubernetes 1.36 say about objects, printed by tests/clients/validation.
#
# = OBJECT     an object that is taken; further rows name it by the name in its metadata
# $ TEXT       a text, which rows name by its number: $0, $1…
# + NAME {PATH: VALUE…} [CAUSE…]    a new object: that one with these changes; null removes
# ~ NAME {PATH: VALUE…} [CAUSE…]    the same as an update of the object; +~ means both
# A cause shows … for a value that Go shows with its own names of members.
`

// object is one that is taken.
type object struct {
	name, resource string
	gvk            schema.GroupVersionKind
	strategy       strategy
	content        map[string]any
}

// signs says which rows a change has: nearly each update of a pod has the same cause.
func (it object) signs(change map[string]any) string {
	for path := range change {
		isShort := strings.Count(path, "/") < 3 || strings.HasSuffix(path, "/image")
		if it.name == "pod" && !isShort {
			return "+"
		}
	}
	return "+~"
}

type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func main() {
	// As envtest starts it.
	capabilities.Setup(true, 0)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	printer := printer{out: out, texts: map[string]int{}, seen: map[string]bool{}}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "rows":
		fmt.Fprint(out, head)
		objects := printer.objects()
		for line := range strings.Lines(cases) {
			parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
			if len(parts) < 3 || parts[0] == "#" {
				continue
			}
			at := slices.IndexFunc(objects, func(it object) bool { return it.name == parts[1] })
			if at < 0 {
				fail("no object %s", parts[1])
			}
			var changes map[string]any
			check(json.Unmarshal([]byte(parts[2]), &changes))
			printer.rows(objects[at], parts[0], changes)
		}
		for _, it := range objects {
			printer.rows(it, "~", it.spelled())
			for _, change := range changesOf(it.content, "") {
				printer.rows(it, it.signs(change), change)
			}
		}
	case len(os.Args) == 4 && os.Args[1] == "random":
		count, err := strconv.Atoi(os.Args[2])
		check(err)
		seed, err := strconv.ParseInt(os.Args[3], 10, 64)
		check(err)
		random := rand.New(rand.NewSource(seed))
		objects := printer.objects()
		for range count {
			it := objects[random.Intn(len(objects))]
			all := changesOf(it.content, "")
			changes := map[string]any{}
			for range 1 + random.Intn(3) {
				for path, value := range all[random.Intn(len(all))] {
					changes[path] = value
				}
			}
			printer.rows(it, []string{"+", "~"}[random.Intn(2)], changes)
		}
	default:
		fail("usage: %s rows | random ROWS SEED", os.Args[0])
	}
}

// printer prints rows, and each text once.
type printer struct {
	out   *bufio.Writer
	texts map[string]int
	seen  map[string]bool
}

// objects reads objects.yaml, and prints what is in it.
func (it *printer) objects() []object {
	var all []object
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		found := object{content: map[string]any{}}
		check(yaml.Unmarshal([]byte(manifest), &found.content))
		version, _ := found.content["apiVersion"].(string)
		kind, _ := found.content["kind"].(string)
		found.gvk = schema.FromAPIVersionAndKind(version, kind)
		found.name = found.content["metadata"].(map[string]any)["name"].(string)
		plural, _ := meta.UnsafeGuessKindToResource(found.gvk)
		if kind == "Endpoints" {
			plural.Resource = "endpoints"
		}
		found.resource = plural.Resource
		found.strategy = strategies[found.gvk.GroupKind().String()]
		_, err := found.decode(found.content)
		check(err)
		if causes := found.create(found.content); len(causes) > 0 {
			fail("%s is refused: %s", found.name, strings.Join(causes, "\n"))
		}
		fmt.Fprintf(it.out, "= %s\n", text(found.content))
		all = append(all, found)
	}
	return all
}

// rows prints what a change of an object leads to: of a new object, and of an update.
func (it *printer) rows(base object, signs string, changes map[string]any) {
	var said [2][]string
	for at, sign := range signs {
		if sign == '+' {
			said[at] = base.create(changed(base.content, changes))
		} else {
			said[at] = base.update(changes)
		}
	}
	if len(signs) == 2 && slices.Equal(said[0], said[1]) {
		it.row(base, signs, changes, said[0])
		return
	}
	for at, sign := range signs {
		it.row(base, string(sign), changes, said[at])
	}
}

func (it *printer) row(base object, signs string, changes map[string]any, causes []string) {
	if slices.Contains(causes, undecoded) {
		return
	}
	shown := []string{}
	for _, cause := range causes {
		shown = append(shown, it.short(cause))
	}
	line := fmt.Sprintf("%s %s %s %s\n", signs, base.name, text(changes), text(shown))
	if !it.seen[line] {
		it.seen[line] = true
		fmt.Fprint(it.out, line)
	}
}

// goValue matches a value with Go's own names of members.
var goValue = regexp.MustCompile(`value: [\[{].*"[A-Z]\w*":.*[\]}](: |$)`)

// short returns a cause without values that Go shows with its own names of members, and with the number of a long text.
func (it *printer) short(cause string) string {
	cause = goValue.ReplaceAllString(cause, "value: …$1")
	// The field, the kind of the cause, and most have a value.
	parts := strings.SplitN(cause, ": ", 4)
	rest := parts[len(parts)-1]
	if len(parts) < 3 || len(rest) < 16 {
		return cause
	}
	number, isKnown := it.texts[rest]
	if !isKnown {
		number = len(it.texts)
		it.texts[rest] = number
		fmt.Fprintf(it.out, "$ %s\n", text(rest))
	}
	return fmt.Sprintf("%s$%d", strings.TrimSuffix(cause, rest), number)
}

// undecoded is said about objects whose values have wrong types.
const undecoded = "undecoded"

// decode completes an object as kube-apiserver does before its strategy sees it.
func (it object) decode(content map[string]any) (runtime.Object, error) {
	sent, err := legacyscheme.Scheme.New(it.gvk)
	check(err)
	if err := json.Unmarshal([]byte(text(content)), sent); err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(sent)
	internal, err := legacyscheme.Scheme.New(schema.GroupVersionKind{Group: it.gvk.Group, Version: runtime.APIVersionInternal, Kind: it.gvk.Kind})
	check(err)
	if err := legacyscheme.Scheme.Convert(sent, internal, nil); err != nil {
		return nil, err
	}
	return internal, nil
}

func (it object) context() context.Context {
	ctx := context.Background()
	if it.strategy.NamespaceScoped() {
		ctx = genericapirequest.WithNamespace(ctx, "ns")
	} else {
		ctx = genericapirequest.WithNamespace(ctx, "")
	}
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: it.gvk.Group, APIVersion: it.gvk.Version, Resource: it.resource,
	})
}

func (it object) create(content map[string]any) []string {
	created, err := it.decode(content)
	if err != nil {
		return []string{undecoded}
	}
	accessor, err := meta.Accessor(created)
	check(err)
	rest.FillObjectMetaSystemFields(accessor)
	accessor.SetUID("uid")
	return causes(rest.BeforeCreate(it.strategy, it.context(), created))
}

// spelled returns the change of a stored object that only spells out its zero values.
func (it object) spelled() map[string]any {
	_, sent := it.stored()
	changes := map[string]any{}
	for name, value := range spelled(reflect.ValueOf(sent)).(map[string]any) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) {
			changes["/"+name] = value
		}
	}
	return changes
}

// stored returns the object as it is stored, and as clients see it.
func (it object) stored() (runtime.Object, runtime.Object) {
	stored, err := it.decode(it.content)
	check(err)
	accessor, err := meta.Accessor(stored)
	check(err)
	rest.FillObjectMetaSystemFields(accessor)
	accessor.SetUID("uid")
	check(rest.BeforeCreate(it.strategy, it.context(), stored))
	accessor.SetResourceVersion("1")
	accessor.SetCreationTimestamp(metav1.Unix(1_700_000_000, 0))
	sent, err := legacyscheme.Scheme.New(it.gvk)
	check(err)
	check(legacyscheme.Scheme.Convert(stored, sent, nil))
	sent.GetObjectKind().SetGroupVersionKind(it.gvk)
	return stored, sent
}

// update updates the object that is stored.
func (it object) update(changes map[string]any) []string {
	stored, sent := it.stored()
	var content map[string]any
	check(json.Unmarshal([]byte(text(sent)), &content))
	updated, err := it.decode(changed(content, changes))
	if err != nil {
		return []string{undecoded}
	}
	return causes(rest.BeforeUpdate(it.strategy, it.context(), updated, stored))
}

// causes returns those of a refusal: without what the text of some says in Go's syntax.
func causes(err error) []string {
	if err == nil {
		return nil
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil || status.Status().Code != 422 {
		return []string{undecoded}
	}
	var all []string
	for _, cause := range status.Status().Details.Causes {
		message, _, _ := strings.Cut(cause.Message, "\n")
		all = append(all, cause.Field+": "+message)
	}
	return all
}

func text(value any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value))
	return strings.TrimSpace(out.String())
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
