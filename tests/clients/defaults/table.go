package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Members whose defaults depend on other members: rules in Rust, beside the table.
var byHand = []string{
	"apps.DaemonSetUpdateStrategy rollingUpdate",
	"apps.DeploymentStrategy rollingUpdate",
	"apps.RollingUpdateDaemonSet maxSurge",
	"apps.RollingUpdateDaemonSet maxUnavailable",
	"apps.RollingUpdateDeployment maxSurge",
	"apps.RollingUpdateDeployment maxUnavailable",
	"apps.RollingUpdateStatefulSetStrategy partition",
	"apps.StatefulSetUpdateStrategy rollingUpdate",
	"apps.StatefulSetUpdateStrategy type",
	"autoscaling.HPAScalingRules policies",
	"autoscaling.HPAScalingRules selectPolicy",
	"autoscaling.HPAScalingRules stabilizationWindowSeconds",
	"autoscaling.HorizontalPodAutoscalerBehavior scaleDown",
	"autoscaling.HorizontalPodAutoscalerBehavior scaleUp",
	"batch.JobSpec backoffLimit",
	"batch.JobSpec completionMode",
	"batch.JobSpec completions",
	"batch.JobSpec manualSelector",
	"batch.JobSpec parallelism",
	"batch.JobSpec podReplacementPolicy",
	"batch.JobSpec suspend",
	"core.Container imagePullPolicy",
	"core.EphemeralContainer imagePullPolicy",
	"core.ImageVolumeSource pullPolicy",
	"core.PersistentVolumeSpec persistentVolumeReclaimPolicy",
	"core.PersistentVolumeSpec volumeMode",
	"core.PodSpec enableServiceLinks",
	"core.ServicePort targetPort",
	"core.ServiceSpec allocateLoadBalancerNodePorts",
	"core.ServiceSpec externalTrafficPolicy",
	"core.ServiceSpec internalTrafficPolicy",
	"core.ServiceSpec sessionAffinityConfig",
	"core.Volume emptyDir",
	"networking.NetworkPolicySpec policyTypes",
	"rbac.Subject apiGroup",
	"resource.DeviceSubRequest count",
	"resource.DeviceTaint timeAdded",
	"resource.ExactDeviceRequest count",
	"resource.NodeAllocatableResourceMapping allocationMultiplier",
}

// isScalar is true for members that Go sends as "", 0 or false.
func isScalar(typ reflect.Type) bool {
	return shown(typ) != "null" && typ.Kind() != reflect.Map && !isTree(typ)
}

// shown returns the zero value in JSON.
func shown(typ reflect.Type) string { return text(reflect.Zero(typ)) }

// rules collects what the functions do to each member of each type.
type rules struct {
	types map[reflect.Type]bool
	// Types that are inside others.
	isInner map[reflect.Type]bool
	// By type and member: the row's sign and value; and whether the member was there without being filled in.
	filled, unfilled map[string]string
	probed           map[string]bool
}

const head = `# Defaults of the built-in types of Kubernetes 1.36, printed by tests/clients/defaults. Types have their names in Go.
#
# KIND.GROUP/VERSION : TYPE   the type of a kind
# TYPE                        and its members, one in a line:
#  MEMBER = VALUE             the value of one that is absent or null
#  MEMBER ?= VALUE            the value of one that is absent, null, empty or zero
#  MEMBER ~                   quantities, which are rounded up to a thousandth
#  MEMBER + TYPE              an object that is made if it is absent
#  MEMBER . TYPE              an object; MEMBER [] TYPE: a list of them; MEMBER {} TYPE: a map of them
`

func printTable(out io.Writer) {
	found := rules{map[reflect.Type]bool{}, map[reflect.Type]bool{}, map[string]string{}, map[string]string{}, map[string]bool{}}
	all := kinds()
	for _, kind := range all {
		found.probe(kind)
	}
	var mixed []string
	for key, value := range found.filled {
		if other, isMixed := found.unfilled[key]; isMixed && !slices.Contains(byHand, key) {
			mixed = append(mixed, fmt.Sprintf("%s %s, not at %s", key, value, other))
		}
	}
	if len(mixed) > 0 {
		sort.Strings(mixed)
		fail("these depend on others:\n%s", strings.Join(mixed, "\n"))
	}
	used := map[string]bool{}
	rows := found.rows(used)
	fmt.Fprint(out, head)
	for _, kind := range all {
		typ := reflect.TypeOf(kind.empty()).Elem()
		if !used[name(typ)] {
			continue
		}
		fmt.Fprintf(out, "%s : %s\n", strings.Trim(kind.Kind+"."+kind.Group, ".")+"/"+kind.Version, name(typ))
	}
	current := ""
	for _, row := range rows {
		typ, rule, _ := strings.Cut(row, " ")
		if !used[typ] {
			continue
		}
		if typ != current {
			current = typ
			fmt.Fprintln(out, typ)
		}
		fmt.Fprintln(out, " "+rule)
	}
}

// rows returns the table's rows, and adds to `used` the types that have some.
func (it *rules) rows(used map[string]bool) []string {
	var rows []string
	type step struct{ from, row, to string }
	var steps []step
	for typ := range it.types {
		for _, member := range fields(typ) {
			key := name(typ) + " " + member.name
			if rule, ok := it.filled[key]; ok && !slices.Contains(byHand, key) {
				rows = append(rows, key+" "+rule)
				used[name(typ)] = true
			}
			sign, inner := shape(member.typ)
			if sign == "" {
				if _, ok := it.filled[key]; !ok && !member.isOmitted && isScalar(member.typ) {
					rows = append(rows, key+" = "+shown(member.typ))
					used[name(typ)] = true
				}
				continue
			}
			if member.name == "metadata" && !it.isInner[typ] {
				continue
			}
			steps = append(steps, step{name(typ), key + " " + sign + " " + name(inner), name(inner)})
			if sign == "+" && !member.isOmitted {
				used[name(typ)] = true
				rows = append(rows, key+" + "+name(inner))
			} else if sign == "+" {
				steps[len(steps)-1].row = key + " . " + name(inner)
			}
		}
		if slices.ContainsFunc(byHand, func(key string) bool { return strings.HasPrefix(key, name(typ)+" ") }) {
			used[name(typ)] = true
		}
	}
	for isMore := true; isMore; {
		isMore = false
		for _, step := range steps {
			if used[step.to] && !slices.Contains(rows, step.row) {
				rows = append(rows, step.row)
				used[step.from], isMore = true, true
			}
		}
	}
	sort.Strings(rows)
	return rows
}

// probe runs the functions on an object of a kind that has every struct, and nothing else.
func (it *rules) probe(kind kind) {
	full := func() reflect.Value {
		object := reflect.ValueOf(kind.empty())
		it.fill(object.Elem())
		return object
	}
	run := func(object reflect.Value) { kind.scheme.Default(object.Interface().(runtime.Object)) }
	before, after := full(), full()
	run(after)
	it.compare(kind.Kind, before.Elem(), after.Elem())
	// Then without each struct, list and map, and with each of them empty.
	for _, place := range places(before.Elem(), nil) {
		key := name(place.typ) + " " + place.member.name
		if it.probed[key] {
			continue
		}
		it.probed[key] = true
		isFilled := func(value reflect.Value) (reflect.Value, bool) {
			object := full()
			at(object.Elem(), place.path).Set(value)
			run(object)
			found := at(object.Elem(), place.path)
			return found, found.IsValid() && !found.IsZero() && !reflect.DeepEqual(found.Interface(), value.Interface()) && !isEmpty(found)
		}
		found, ok := isFilled(reflect.Zero(place.member.typ))
		if !ok {
			continue
		}
		sign := "="
		if kind := place.member.typ.Kind(); kind == reflect.Slice {
			if _, ok := isFilled(reflect.MakeSlice(place.member.typ, 0, 0)); ok {
				sign = "?="
			}
		}
		it.filled[key] = sign + " " + text(found)
	}
}

func isEmpty(value reflect.Value) bool {
	return (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0
}

// fill makes all structs inside.
func (it *rules) fill(value reflect.Value) {
	it.types[value.Type()] = true
	for _, member := range fields(value.Type()) {
		inside := value.FieldByIndex(member.index)
		if member.typ == reflect.TypeFor[corev1.ResourceList]() {
			inside.Set(reflect.ValueOf(corev1.ResourceList{"probe": resource.MustParse("1u")}))
		}
		sign, inner := shape(member.typ)
		if sign == "" || member.name == "metadata" {
			continue
		}
		it.isInner[inner] = true
		made := reflect.New(inner)
		it.fill(made.Elem())
		switch sign {
		case "+":
			inside.Set(made.Elem())
		case ".":
			inside.Set(made)
		case "[]":
			inside.Set(reflect.Append(inside, made.Elem()))
		case "{}":
			inside.Set(reflect.MakeMap(member.typ))
			inside.SetMapIndex(reflect.ValueOf("probe").Convert(member.typ.Key()), made.Elem())
		}
	}
}

// compare records which leaves are filled in.
func (it *rules) compare(path string, before, after reflect.Value) {
	for _, member := range fields(before.Type()) {
		was, is := before.FieldByIndex(member.index), after.FieldByIndex(member.index)
		key, here := name(before.Type())+" "+member.name, path+"."+member.name
		sign, _ := shape(member.typ)
		switch {
		case member.typ == reflect.TypeFor[corev1.ResourceList]():
			if text(was) != text(is) {
				it.filled[key] = "~"
			} else {
				it.unfilled[key] = here
			}
		case sign == "":
			it.leaf(key, here, member, was, is)
		case member.name == "metadata":
		case sign != "+" && is.IsZero() != was.IsZero():
			it.unfilled[key] = here
		case sign == "+":
			it.compare(here, was, is)
		case sign == ".":
			it.compare(here, was.Elem(), is.Elem())
		case sign == "[]" && is.Len() > 0:
			it.compare(here+"[]", was.Index(0), is.Index(0))
		case sign == "{}":
			at := was.MapKeys()[0]
			it.compare(here+"{}", was.MapIndex(at), is.MapIndex(at))
		}
	}
}

func (it *rules) leaf(key, here string, member field, was, is reflect.Value) {
	if text(was) == text(is) || (member.isOmitted && isEmpty(is)) {
		it.unfilled[key] = here
		return
	}
	sign := "?="
	if member.typ.Kind() == reflect.Pointer {
		sign = "="
	}
	rule := sign + " " + text(is)
	if known, isKnown := it.filled[key]; isKnown && known != rule && !slices.Contains(byHand, key) {
		fail("%s: %s at %s, else %s", key, rule, here, known)
	}
	it.filled[key] = rule
}

// place is a member of a struct somewhere in an object.
type place struct {
	typ    reflect.Type
	member field
	path   []any
}

// places returns those of all structs, lists and maps but the structs that have no pointer.
func places(value reflect.Value, path []any) []place {
	var all []place
	for _, member := range fields(value.Type()) {
		sign, _ := shape(member.typ)
		if sign == "" || member.name == "metadata" || sign == "{}" {
			continue
		}
		here := append(slices.Clone(path), member.index)
		inside := value.FieldByIndex(member.index)
		if sign != "+" {
			all = append(all, place{value.Type(), member, here})
		}
		switch sign {
		case "+":
			all = append(all, places(inside, here)...)
		case ".":
			all = append(all, places(inside.Elem(), here)...)
		case "[]":
			all = append(all, places(inside.Index(0), append(here, 0))...)
		}
	}
	return all
}

func at(value reflect.Value, path []any) reflect.Value {
	for _, step := range path {
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if !value.IsValid() {
			break
		}
		switch step := step.(type) {
		case []int:
			value = value.FieldByIndex(step)
		case int:
			value = value.Index(step)
		}
	}
	return value
}
