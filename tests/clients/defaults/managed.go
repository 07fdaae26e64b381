package main

import (
	"encoding/json"
	"io"
	"math/rand"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// managedRow is an update, or a create without Live, and the entries after it, without times.
type managedRow struct {
	Live    any `json:"live"`
	Next    any `json:"next"`
	Managed any `json:"managed"`
}

// printZeros prints what Go writes for a new object of each kind.
func printZeros(out io.Writer) {
	for _, kind := range kinds() {
		zero := decoded(kind.empty().(runtime.Object)).(map[string]any)
		delete(zero, "metadata")
		text, err := json.Marshal(zero)
		check(err)
		io.WriteString(out, kind.GroupVersion().String()+" "+kind.Kind+" "+string(text)+"\n")
	}
}

// models returns the schemas of all types, by the names that managed fields are looked up by.
func models() map[string]*spec.Schema {
	defs := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + friendly(path))
	})
	all := map[string]*spec.Schema{}
	byType := map[string]schema.GroupVersionKind{}
	for gvk, typ := range legacyscheme.Scheme.AllKnownTypes() {
		name := typ.PkgPath() + "." + typ.Name()
		if named, ok := reflect.New(typ).Interface().(interface{ OpenAPIModelName() string }); ok {
			name = named.OpenAPIModelName()
		}
		byType[name] = gvk
	}
	for path, def := range defs {
		one := def.Schema
		if gvk, ok := byType[path]; ok {
			one.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
		}
		all[friendly(path)] = &one
	}
	return all
}

func friendly(path string) string { return strings.ReplaceAll(path, "/", "~1") }

type anyCreater struct{}

func (anyCreater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	return legacyscheme.Scheme.New(gvk)
}

// printManaged prints the entries of random objects that one writer creates and another one updates.
func printManaged(out io.Writer, count int, seed int64) {
	nils := 0.5
	if count == 1 {
		// Short rows, for the repository.
		nils = 0.85
	}
	random := rand.New(rand.NewSource(seed))
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, chosen), random, legacyscheme.Codecs)
	filler.NilChance(nils).NumElements(0, 2)
	converter, err := managedfields.NewTypeConverter(models(), false)
	check(err)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, kind := range kinds() {
		if kind.scheme != legacyscheme.Scheme || !managesKind(converter, kind) {
			continue
		}
		for range count {
			first, second := kind.random(filler), kind.random(filler)
			manager, err := managedfields.NewDefaultFieldManager(converter, kind.scheme, kind.scheme, anyCreater{},
				kind.GroupVersionKind, kind.GroupVersionKind.GroupVersion(), "", nil)
			check(err)
			created := manager.UpdateNoErrors(kind.empty().(runtime.Object), first.DeepCopyObject(), "creator")
			encode(encoder, nil, first, created)
			second.(metav1.Object).SetUID("u")
			created.(metav1.Object).SetUID("u")
			updated := manager.UpdateNoErrors(created.DeepCopyObject(), second.DeepCopyObject(), "updater")
			encode(encoder, created, second, updated)
		}
	}
}

func managesKind(converter managedfields.TypeConverter, kind kind) bool {
	object := kind.empty().(runtime.Object)
	object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	_, err := converter.ObjectToTyped(object)
	return err == nil
}

func (it kind) random(filler interface{ Fill(any) }) runtime.Object {
	object := it.empty().(runtime.Object)
	filler.Fill(object)
	object.GetObjectKind().SetGroupVersionKind(it.GroupVersionKind)
	accessor, err := meta.Accessor(object)
	check(err)
	accessor.SetManagedFields(nil)
	accessor.SetName("a")
	accessor.SetUID("")
	it.scheme.Default(object)
	// As servers decode it: without the empty lists that JSON leaves out.
	text, err := json.Marshal(object)
	check(err)
	read := it.empty().(runtime.Object)
	check(json.Unmarshal(text, read))
	return read
}

// encode prints a row, unless Go writes nulls: those count as members here, and no stored object has them.
func encode(encoder *json.Encoder, live, next, after runtime.Object) {
	if live != nil && hasNulls(decoded(live)) || hasNulls(decoded(next)) {
		return
	}
	accessor, err := meta.Accessor(after)
	check(err)
	entries := accessor.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	var before any
	if live != nil {
		before = decoded(live)
	}
	check(encoder.Encode(managedRow{before, decoded(next), entries}))
}

func hasNulls(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if hasNulls(inner) {
				return true
			}
		}
	case []any:
		for _, inner := range value {
			if hasNulls(inner) {
				return true
			}
		}
	}
	return value == nil
}
