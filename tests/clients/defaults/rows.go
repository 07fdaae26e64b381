package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/randfill"
)

// row is an object before and after its defaults. Neither has nulls.
type row struct {
	Sent   any `json:"sent"`
	Filled any `json:"filled"`
}

// Manifests with members on which defaults depend.
//
//go:embed cases.txt
var cases string

// printCases prints the cases.
func printCases(out io.Writer) {
	all := kinds()
	for line := range strings.Lines(cases) {
		var sent map[string]any
		check(json.Unmarshal([]byte(line), &sent))
		isOfKind := func(kind kind) bool {
			return kind.Kind == sent["kind"] && kind.GroupVersion().String() == sent["apiVersion"]
		}
		printRow(out, all[slices.IndexFunc(all, isOfKind)], sent)
	}
}

// printRow prints an object as it is sent, and as kube-apiserver completes what it decodes from that.
func printRow(out io.Writer, kind kind, sent any) {
	text, err := json.Marshal(sent)
	check(err)
	object := kind.empty().(runtime.Object)
	check(json.Unmarshal(text, object))
	kind.scheme.Default(object)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(row{sent, withoutNulls(decoded(object))}))
}

// printRows prints each object as Go sends it, and as a manifest has it: without members that Go sends only because it
// cannot leave them out.
func printRows(out io.Writer, count int, seed int64) {
	random := rand.New(rand.NewSource(seed))
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, chosen), random, legacyscheme.Codecs)
	filler.NilChance(0.5).NumElements(0, 3)
	printCases(out)
	for _, kind := range kinds() {
		for number := range count + 1 {
			object := kind.empty().(runtime.Object)
			if number > 0 {
				filler.Fill(object)
			}
			object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
			manifest := plain(reflect.ValueOf(object).Elem())
			if _, ok := manifest["metadata"]; !ok {
				manifest["metadata"] = struct{}{}
			}
			printRow(out, kind, withoutNulls(decoded(object)))
			printRow(out, kind, manifest)
		}
	}
}

// chosen fills members whose value matters to some default with values that matter.
func chosen(_ serializer.CodecFactory) []any {
	return []any{
		func(value *resource.Quantity, c randfill.Continue) {
			*value = resource.MustParse(pick(c, "0", "1", "100m", "1500m", "2k", "1Gi", "1536Mi", "1u", "1500u", "999999u",
				"999999999999n", "-1u", "1e3"))
		},
		func(value *intstr.IntOrString, c randfill.Continue) {
			*value = intstr.Parse(pick(c, "", "0", "0", "80", "25%", "http"))
		},
		func(value *corev1.ServiceType, c randfill.Continue) {
			*value = pick(c, "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
				corev1.ServiceTypeExternalName)
		},
		func(value *corev1.ServiceAffinity, c randfill.Continue) {
			*value = pick(c, "", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
		},
		func(value *appsv1.DeploymentStrategyType, c randfill.Continue) {
			*value = pick(c, "", appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType)
		},
		func(value *appsv1.DaemonSetUpdateStrategyType, c randfill.Continue) {
			*value = pick(c, "", appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)
		},
		func(value *appsv1.StatefulSetUpdateStrategyType, c randfill.Continue) {
			*value = pick(c, "", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)
		},
		func(value *corev1.LimitType, c randfill.Continue) {
			*value = pick(c, "", corev1.LimitTypeContainer, corev1.LimitTypePod)
		},
		func(value *resourcev1.DeviceAllocationMode, c randfill.Continue) {
			*value = pick(c, "", resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll)
		},
		func(value *admissionregistrationv1.FailurePolicyType, c randfill.Continue) {
			*value = pick(c, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
		},
		func(value *corev1.ContainerRestartPolicy, c randfill.Continue) {
			*value = pick(c, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever)
		},
		func(value *corev1.ResourceList, c randfill.Continue) {
			*value = corev1.ResourceList{}
			for range c.Intn(4) {
				var amount resource.Quantity
				c.Fill(&amount)
				(*value)[pick(c, corev1.ResourceCPU, corev1.ResourceMemory, "hugepages-2Mi", "example.com/gpu",
					corev1.ResourceEphemeralStorage)] = amount
			}
		},
		func(value *corev1.Container, c randfill.Continue) {
			c.FillNoCustom(value)
			value.Image = image(c)
		},
		func(value *corev1.EphemeralContainerCommon, c randfill.Continue) {
			c.FillNoCustom(value)
			value.Image = image(c)
		},
		func(value *corev1.ImageVolumeSource, c randfill.Continue) {
			c.FillNoCustom(value)
			value.Reference = image(c)
		},
		func(value *corev1.PullPolicy, c randfill.Continue) {
			*value = pick(c, "", "", corev1.PullAlways, corev1.PullNever)
		},
		// Nulls in maps are no members.
		func(value *[]byte, _ randfill.Continue) { *value = []byte{1} },
		func(value *certificatesv1.ExtraValue, _ randfill.Continue) { *value = certificatesv1.ExtraValue{"a"} },
		// A time that is filled in is the present one.
		func(value *resourcev1.DeviceTaint, c randfill.Continue) {
			c.FillNoCustom(value)
			value.TimeAdded = &metav1.Time{Time: metav1.Unix(1_700_000_000, 0).UTC()}
		},
	}
}

func image(c randfill.Continue) string {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	return pick(c, "", "nginx", "nginx:latest", "nginx:1", "nginx:", "nginx:la/test", "a/b", "Upper/case", "UPPER.example/case",
		"localhost/b:latest", "localhost:5000/b", "host:port/b", "host.example:5000/b:1", "nginx"+digest, "nginx:latest"+digest,
		"nginx@sha256:00", "a//b", "a/b_", "a/b__c", "a/b___c", "a/b--c", "a/-b", "a.-b/c", "[::1]:5000/a", "[::1/a", "a:b:c", " a",
		strings.Repeat("0a", 32), "docker.io/nginx", "index.docker.io/nginx", strings.Repeat("a", 300))
}

func pick[T any](c randfill.Continue, values ...T) T { return values[c.Intn(len(values))] }

// plain returns a value as JSON, without the members that are zero.
func plain(value reflect.Value) map[string]any {
	members := map[string]any{}
	for _, member := range fields(value.Type()) {
		inside := value.FieldByIndex(member.index)
		if inside.IsZero() || isEmpty(inside) {
			continue
		}
		sign, _ := shape(member.typ)
		if member.name == "metadata" {
			sign = ""
		}
		switch sign {
		case "+":
			if inner := plain(inside); len(inner) > 0 {
				members[member.name] = inner
			}
		case ".":
			members[member.name] = plain(inside.Elem())
		case "[]":
			items := []any{}
			for at := range inside.Len() {
				items = append(items, plain(inside.Index(at)))
			}
			members[member.name] = items
		case "{}":
			values := map[string]any{}
			for _, key := range inside.MapKeys() {
				values[fmt.Sprint(key)] = plain(inside.MapIndex(key))
			}
			members[member.name] = values
		default:
			members[member.name] = withoutNulls(decoded(inside.Interface()))
		}
	}
	if typ := value.FieldByName("TypeMeta"); typ.IsValid() {
		meta := typ.Interface().(metav1.TypeMeta)
		for name, text := range map[string]string{"kind": meta.Kind, "apiVersion": meta.APIVersion} {
			if text != "" {
				members[name] = text
			}
		}
	}
	return members
}

func decoded(value any) (found any) {
	out, err := json.Marshal(value)
	check(err)
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	decoder.UseNumber()
	check(decoder.Decode(&found))
	return found
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if inner == nil {
				delete(value, name)
			} else {
				withoutNulls(inner)
			}
		}
	case []any:
		for _, inner := range value {
			withoutNulls(inner)
		}
	}
	return value
}
