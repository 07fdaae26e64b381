// Finds out what Kubernetes' own defaulting functions fill in, and shows what they do to objects.
//
//	defaults table
//	defaults rows OBJECTS SEED
//	defaults conversions OBJECTS SEED
//	defaults zeros
//	defaults managed OBJECTS SEED
//
// `table` prints the table of cache-server/objects/src/defaults/table.txt, which says what its rows mean. `rows` prints
// objects before and after their defaults, as rows of JSON: those of cases.txt, and of each kind an empty one and OBJECTS
// random ones. `conversions` prints autoscalers at two versions, `zeros` new objects of each kind, and `managed` what random
// writes do to managedFields.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// kind is one whose objects are stored.
type kind struct {
	schema.GroupVersionKind
	scheme *runtime.Scheme
}

// Kinds of orders and of lists that no server stores.
var unstored = []string{"Binding", "ComponentStatus", "Eviction", "PodStatusResult", "RangeAllocation"}

// kinds returns the kinds at the versions that the server has.
func kinds() []kind {
	var found []kind
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, aggregator.Scheme} {
		for gvk, typ := range scheme.AllKnownTypes() {
			wanted := "v1"
			if gvk.Group == "autoscaling" {
				wanted = "v2"
			}
			_, isObject := typ.FieldByName("ObjectMeta")
			isKnown := slices.ContainsFunc(found, func(other kind) bool { return other.GroupVersionKind == gvk })
			if gvk.Version == wanted && isObject && !slices.Contains(unstored, gvk.Kind) && strings.HasPrefix(typ.PkgPath(), "k8s.io/") && !isKnown {
				found = append(found, kind{gvk, scheme})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

func (it kind) empty() any {
	object, err := it.scheme.New(it.GroupVersionKind)
	check(err)
	return object
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "table":
		printTable(out)
	case len(os.Args) == 2 && os.Args[1] == "zeros":
		printZeros(out)
	case len(os.Args) == 4 && (os.Args[1] == "rows" || os.Args[1] == "conversions" || os.Args[1] == "managed"):
		count, err := strconv.Atoi(os.Args[2])
		check(err)
		seed, err := strconv.ParseInt(os.Args[3], 10, 64)
		check(err)
		switch os.Args[1] {
		case "rows":
			printRows(out, count, seed)
		case "managed":
			printManaged(out, count, seed)
		default:
			printConversions(out, count, seed)
		}
	default:
		fail("usage: %s table | zeros | rows OBJECTS SEED | conversions OBJECTS SEED | managed OBJECTS SEED", os.Args[0])
	}
}

// field is a member of a struct in JSON.
type field struct {
	name  string
	index []int
	typ   reflect.Type
	// isOmitted is true if Go leaves out the zero value.
	isOmitted bool
}

// fields returns the members of a struct, with those of structs inside that have no name of their own.
func fields(typ reflect.Type) []field {
	var all []field
	for i := range typ.NumField() {
		member := typ.Field(i)
		name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
		switch {
		case name == "-" || !member.IsExported():
		case name == "" && member.Anonymous:
			for _, inner := range fields(member.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
		default:
			isOmitted := strings.Contains(options, "omitzero") ||
				(strings.Contains(options, "omitempty") && member.Type.Kind() != reflect.Struct)
			all = append(all, field{name, []int{i}, member.Type, isOmitted})
		}
	}
	return all
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// isTree is true for structs that are objects in JSON.
func isTree(typ reflect.Type) bool {
	return typ.Kind() == reflect.Struct && !typ.Implements(marshaler) && !reflect.PointerTo(typ).Implements(marshaler)
}

// shape says how a member holds a struct: itself, by a pointer, in a list or in a map.
func shape(typ reflect.Type) (sign string, inner reflect.Type) {
	switch {
	case isTree(typ):
		return "+", typ
	case typ.Kind() == reflect.Pointer && isTree(typ.Elem()):
		return ".", typ.Elem()
	case typ.Kind() == reflect.Slice && isTree(typ.Elem()):
		return "[]", typ.Elem()
	case typ.Kind() == reflect.Map && isTree(typ.Elem()):
		return "{}", typ.Elem()
	}
	return "", nil
}

// name returns the name of a type as the table has it: `core.PodSpec`.
func name(typ reflect.Type) string {
	parts := strings.Split(typ.PkgPath(), "/")
	return parts[len(parts)-2] + "." + typ.Name()
}

func text(value reflect.Value) string {
	out, err := json.Marshal(value.Interface())
	check(err)
	return string(out)
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
