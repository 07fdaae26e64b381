{{- define "cache-server.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "cache-server.account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- /* Cluster-wide objects of releases with one name in two namespaces. */ -}}
{{- define "cache-server.clusterName" -}}
{{ .Release.Namespace }}-{{ .Release.Name }}
{{- end }}

{{- /* The rules that let a subject read the cached types. */ -}}
{{- define "cache-server.typeRules" -}}
{{- range .Values.types }}
{{- $parts := splitn "." 2 . }}
- apiGroups: [{{ $parts._1 | default "" | quote }}]
  resources: [{{ $parts._0 | quote }}]
  verbs: [get, list, watch]
{{- end }}
{{- end }}

{{- define "cache-server.args" -}}
{{- $placement := .Values.placement -}}
- serve
- --upstream
- --listen={{ ternary "127.0.0.1" .Values.listenAddress (eq $placement "sidecar") }}:8443
- --tls-cert=/tls/tls.crt
- --tls-key=/tls/tls.key
- --resources={{ join "," .Values.types }}
{{- $scope := deepCopy (default dict .Values.scope) }}
{{- if eq $placement "daemonset" }}
{{- $_ := list "spec.nodeName=$(NODE_NAME)" $scope.pods | compact | join "," | set $scope "pods" }}
{{- end }}
{{- range $type, $selector := $scope }}
- {{ printf "--scope=%s=%s" $type $selector | quote }}
{{- end }}
{{- if eq $placement "daemonset" }}
- --unix-socket=/run/cache-server/api.sock
{{- end }}
{{- if ne $placement "sidecar" }}
- --token-review
{{- end }}
- --state-dir=/state/caches
{{- if and (eq $placement "deployment") .Values.deployment.peers .Values.tls.caKey }}
- --peer=https://{{ .Release.Name }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
- --peer-ca=/tls/{{ .Values.tls.caKey }}
{{- end }}
- --log={{ .Values.log }}
- --log-format={{ .Values.logFormat }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The container, also for pods of other charts: they add the volumes of `cache-server.volumes`. */ -}}
{{- define "cache-server.container" -}}
name: cache-server
image: {{ with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.placement "sidecar" }}
# A sidecar: its container starts before the application's and ends after it. The application may be ready sooner.
restartPolicy: Always
{{- end }}
args:
{{- include "cache-server.args" . | nindent 2 }}
env:
  # Bounds the memory that freed blocks keep.
  - {name: MALLOC_ARENA_MAX, value: "2"}
  {{- if eq .Values.placement "daemonset" }}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- end }}
{{- /* A sidecar serves its pod alone, where kubelets do not reach it. */ -}}
{{- if ne .Values.placement "sidecar" }}
ports:
  - {name: https, containerPort: 8443}
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
{{- if and (eq .Values.placement "deployment") .Values.preStopSeconds (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
lifecycle:
  preStop: {sleep: {seconds: {{ .Values.preStopSeconds }}}}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: cache-server-tls, mountPath: /tls, readOnly: true}
  - {name: cache-server-state, mountPath: /state}
  {{- if eq .Values.placement "daemonset" }}
  - {name: cache-server-socket, mountPath: /run/cache-server}
  {{- end }}
{{- end }}

{{- define "cache-server.volumes" -}}
- name: cache-server-tls
  # 0440, in a form that YAML 1.1 and 1.2 read alike.
  secret: {secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 288}
{{- if eq .Values.placement "daemonset" }}
# On the node, so that they outlive the pod.
- name: cache-server-state
  hostPath: {path: {{ .Values.daemonset.stateFolder }}, type: DirectoryOrCreate}
- name: cache-server-socket
  hostPath: {path: {{ .Values.daemonset.socketFolder }}, type: DirectoryOrCreate}
{{- else }}
- name: cache-server-state
  emptyDir: {sizeLimit: {{ .Values.state.sizeLimit }}}
{{- end }}
{{- end }}

{{- define "cache-server.pod" -}}
metadata:
  labels:
    {{- include "cache-server.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "cache-server.account" . | quote }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- if eq .Values.placement "daemonset" }}
    runAsUser: {{ .Values.daemonset.runAsUser }}
    runAsNonRoot: {{ ne (int .Values.daemonset.runAsUser) 0 }}
    {{- else }}
    runAsUser: 65532
    runAsNonRoot: true
    {{- end }}
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with ternary (concat .Values.daemonset.tolerations .Values.tolerations) .Values.tolerations (eq .Values.placement "daemonset") }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .Values.topologySpread (eq .Values.placement "deployment") }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "cache-server.labels" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if eq .Values.placement "sidecar" }}
  initContainers:
    - {{ include "cache-server.container" . | nindent 6 | trim }}
  containers:
    {{- toYaml .Values.sidecar.containers | nindent 4 }}
  {{- else }}
  containers:
    - {{ include "cache-server.container" . | nindent 6 | trim }}
  {{- end }}
  volumes:
    {{- include "cache-server.volumes" . | nindent 4 }}
    {{- if eq .Values.placement "sidecar" }}
    {{- with .Values.sidecar.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- end }}
{{- end }}
