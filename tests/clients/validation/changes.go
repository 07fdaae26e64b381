package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Members that hold the identity of the object, which rows name, and those that the storage of services fills in before its
// strategy sees them.
var unchanged = []string{"/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/spec/clusterIP", "/spec/clusterIPs",
	"/spec/ipFamilies", "/spec/ipFamilyPolicy"}

// changesOf returns changes of each value inside, each by its path.
func changesOf(value any, path string) []map[string]any {
	var all []map[string]any
	add := func(path string, value any) { all = append(all, map[string]any{path: value}) }
	if slices.Contains(unchanged, path) {
		return nil
	}
	if path != "" && path != "/metadata" {
		add(path, nil)
	}
	switch value := value.(type) {
	case map[string]any:
		if path != "" && path != "/metadata" && !isTexts(value) {
			add(path, map[string]any{})
		}
		if isTexts(value) {
			add(path+"/_bad_", "x")
			add(path+"/good.example~1key", "-bad_ value")
			if strings.Count(path, "/") < 5 {
				add(path+"/good.example~1key", "good")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			all = append(all, changesOf(value[name], path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))...)
		}
	case []any:
		if strings.Count(path, "/") < 4 {
			add(path, []any{})
		}
		if len(value) > 0 {
			add(path, append(slices.Clone(value), value[0]))
		}
		for at, item := range value {
			all = append(all, changesOf(item, path+"/"+strconv.Itoa(at))...)
		}
	case string:
		add(path, "-Bad_")
		// Deeper ones are like those that are removed.
		if strings.Count(path, "/") < 5 {
			add(path, "")
		}
		if strings.HasSuffix(path, "/image") || strings.Count(path, "/") < 3 {
			add(path, "other")
		}
		if _, err := strconv.Atoi(strings.TrimRight(value, "mGi%")); err == nil {
			add(path, "-1")
			add(path, "3")
		}
	case float64:
		add(path, -1)
		add(path, 70000)
		if strings.Count(path, "/") < 5 {
			add(path, 0)
		}
	case bool:
		add(path, !value)
	}
	return all
}

// isTexts is true for labels and the like.
func isTexts(members map[string]any) bool {
	for name, value := range members {
		if _, ok := value.(string); !ok || strings.ToLower(name[:1]) != name[:1] || isField(name) {
			return false
		}
	}
	return len(members) > 0
}

// isField is true for names of members of Kubernetes' types.
func isField(name string) bool {
	return slices.Contains([]string{"kind", "name", "type", "value", "path", "operator", "ip", "image", "key", "driver", "server",
		"serviceAccountName", "action", "port", "host", "selectPolicy", "component", "apiGroup", "cidr", "claimName", "minAvailable",
		"maxUnavailable", "whenDeleted", "status", "topologyKey", "fieldPath", "resource", "claimRef", "namespace", "scopeName",
		"controller", "averageValue", "conditionType", "secretName", "externalName"}, name)
}

// changed returns an object with changes.
func changed(content map[string]any, changes map[string]any) map[string]any {
	var copied map[string]any
	check(json.Unmarshal([]byte(text(content)), &copied))
	for _, path := range slices.Sorted(maps.Keys(changes)) {
		var steps []string
		for step := range strings.SplitSeq(path[1:], "/") {
			steps = append(steps, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
		// Copied too: a further change may be inside.
		var value any
		check(json.Unmarshal([]byte(text(changes[path])), &value))
		copied, _ = put(copied, steps, value).(map[string]any)
	}
	return copied
}

// put sets the value at a path. Nothing changes where the path leads nowhere.
func put(value any, steps []string, to any) any {
	if len(steps) == 0 {
		return to
	}
	switch value := value.(type) {
	case nil:
		if to == nil {
			return nil
		}
		return map[string]any{steps[0]: put(nil, steps[1:], to)}
	case map[string]any:
		if inner := put(value[steps[0]], steps[1:], to); inner == nil {
			delete(value, steps[0])
		} else {
			value[steps[0]] = inner
		}
	case []any:
		at, err := strconv.Atoi(steps[0])
		if err != nil || len(value) < at {
			return value
		}
		if at == len(value) {
			value = append(value, nil)
		}
		if inner := put(value[at], steps[1:], to); inner == nil {
			return slices.Delete(value, at, at+1)
		} else {
			value[at] = inner
		}
		return value
	}
	return value
}

// spelled returns a value with each member that Go leaves out because it is zero.
func spelled(value reflect.Value) any {
	_, isText := value.Interface().(json.Marshaler)
	switch {
	case value.Kind() == reflect.Pointer:
		return spelled(value.Elem())
	case isText || value.Type() == reflect.TypeFor[[]byte]():
	case value.Kind() == reflect.Struct:
		members := map[string]any{}
		for at := range value.NumField() {
			name, options, _ := strings.Cut(value.Type().Field(at).Tag.Get("json"), ",")
			field := value.Field(at)
			switch field.Kind() {
			case reflect.Pointer, reflect.Interface:
				if field.IsNil() {
					continue
				}
			}
			// Only these may not even have empty members.
			isBare := value.Type() == reflect.TypeFor[corev1.PersistentVolumeClaimTemplate]() && name == "metadata"
			if isBare {
				continue
			}
			if strings.Contains(options, "inline") {
				maps.Copy(members, spelled(field).(map[string]any))
			} else if name != "" && name != "-" {
				members[name] = spelled(field)
			}
		}
		return members
	case value.Kind() == reflect.Slice:
		items := []any{}
		for at := range value.Len() {
			items = append(items, spelled(value.Index(at)))
		}
		return items
	case value.Kind() == reflect.Map:
		members := map[string]any{}
		for _, key := range value.MapKeys() {
			members[key.String()] = spelled(value.MapIndex(key))
		}
		return members
	}
	var plain any
	check(json.Unmarshal([]byte(text(value.Interface())), &plain))
	return plain
}
