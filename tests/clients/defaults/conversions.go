package main

import (
	"encoding/json"
	"io"
	"math/rand"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"sigs.k8s.io/randfill"
)

// conversion is an object at two versions. Neither has nulls.
type conversion struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// printConversions prints random autoscalers of the newer version at the older one, and those again at the newer one, with
// and without the annotations that keep what the older version has no members for.
func printConversions(out io.Writer, count int, seed int64) {
	random := rand.New(rand.NewSource(seed))
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, chosen, scaled), random, legacyscheme.Codecs)
	filler.NilChance(0.6).NumElements(1, 2)
	for range count {
		newer := &autoscalingv2.HorizontalPodAutoscaler{}
		filler.Fill(newer)
		newer.ObjectMeta = metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"kept": "yes"}}
		older := &autoscalingv1.HorizontalPodAutoscaler{}
		printConversion(out, newer, older)
		printConversion(out, older, &autoscalingv2.HorizontalPodAutoscaler{})
		older.Annotations = nil
		printConversion(out, older, &autoscalingv2.HorizontalPodAutoscaler{})
	}
}

// printConversion prints an object as it is decoded, and as it is encoded at the version of another one.
func printConversion(out io.Writer, from, to runtime.Object) {
	for _, object := range []runtime.Object{from, to} {
		kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
		check(err)
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	kind := to.GetObjectKind().GroupVersionKind()
	completed := from.DeepCopyObject()
	legacyscheme.Scheme.Default(completed)
	if from.GetObjectKind().GroupVersionKind().Version == "v2" {
		// Stored objects are complete.
		completed = from
	}
	internal := &autoscaling.HorizontalPodAutoscaler{}
	check(legacyscheme.Scheme.Convert(completed, internal, nil))
	check(legacyscheme.Scheme.Convert(internal, to, nil))
	to.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind(kind))
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(conversion{withoutNulls(decoded(from)), withoutNulls(decoded(to))}))
}

// scaled fills members on which the conversions depend with values that matter, and no other with a zero, which only one of
// the versions leaves out.
func scaled(_ serializer.CodecFactory) []any {
	return []any{
		func(value *int32, c randfill.Continue) { *value = 1 + int32(c.Intn(100)) },
		func(value *string, c randfill.Continue) { *value = pick(c, "one", "two", "a/b", "<\"&>") },
		func(value *corev1.ResourceName, c randfill.Continue) {
			*value = pick(c, corev1.ResourceCPU, corev1.ResourceMemory)
		},
		func(value *autoscalingv2.MetricSpec, c randfill.Continue) {
			c.FillNoCustom(value)
			value.Type = pick(c, autoscalingv2.ResourceMetricSourceType, autoscalingv2.PodsMetricSourceType)
		},
		func(value *autoscalingv2.MetricStatus, c randfill.Continue) {
			c.FillNoCustom(value)
			value.Type = pick(c, autoscalingv2.ResourceMetricSourceType, autoscalingv2.PodsMetricSourceType)
		},
		func(value *metav1.LabelSelector, _ randfill.Continue) {
			value.MatchLabels = map[string]string{"a": "b"}
		},
		func(value *metav1.Time, _ randfill.Continue) { *value = metav1.Unix(1_700_000_000, 0) },
	}
}
