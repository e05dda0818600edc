{{/* The beginning of all names: a valid name of a Service, with at most 40 characters, and another one
for each release. A release name with a dot, a leading digit or too many characters is made valid, and
a hash keeps it apart from others. The rest of a name never contains the chart's name, so that two
releases share no name at all. */}}
{{- define "orderlane.name" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $chart := include "orderlane.chartName" . }}
{{- $wanted := ternary $chart (printf "%s-%s" .Release.Name $chart) (eq .Release.Name $chart) }}
{{- $valid := regexReplaceAll "^([0-9])" (replace "." "-" $wanted) "r-${1}" }}
{{- if or (ne $valid $wanted) (gt (len $valid) 40) }}
{{- $valid = printf "%s-%s" (trunc 31 $valid) (sha256sum $wanted | trunc 8) }}
{{- end }}
{{- $valid }}
{{- end }}
{{- end }}

{{- define "orderlane.chartName" -}}
{{- .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* The labels by which services, policies and workloads select the pods of a part:
(dict "root" $ "part" "proxy"), with "broker" those of one broker with replicas. They never change. */}}
{{- define "orderlane.selector" -}}
{{- $labels := dict "app.kubernetes.io/name" (include "orderlane.chartName" .root) "app.kubernetes.io/instance" .root.Release.Name "app.kubernetes.io/component" .part }}
{{- with .broker }}{{ $_ := set $labels "orderlane-broker" . }}{{ end }}
{{- toYaml $labels }}
{{- end }}

{{/* Values of a part, as {labels, annotations, podLabels, podAnnotations, extraEnv, ...}. */}}
{{- define "orderlane.values" -}}
{{- $values := .root.Values }}
{{- get (dict "proxy" $values.proxy "broker" $values.embedded "nameserver" $values.embedded.nameserver) .part | default dict | toYaml }}
{{- end }}

{{/* Labels and annotations of an object: of a part, with "values" also an object's own:
(dict "root" $ "part" "proxy" "values" .Values.ingress "annotations" (dict NAME VALUE)). */}}
{{- define "orderlane.metadata" -}}
{{- $values := include "orderlane.values" . | fromYaml }}
{{- $own := .values | default dict }}
{{- $labels := merge (include "orderlane.selector" . | fromYaml) (dict
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version)
) (deepCopy ($own.labels | default dict)) ($values.labels | default dict) .root.Values.commonLabels -}}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with merge dict (.annotations | default dict) ($own.annotations | default dict) ($values.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same of a pod. Without versions: a new chart with the same image restarts no pod. */}}
{{- define "orderlane.podMetadata" -}}
{{- $values := include "orderlane.values" . | fromYaml -}}
labels:
  {{- merge (include "orderlane.selector" . | fromYaml) ($values.podLabels | default dict) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge dict (.annotations | default dict) ($values.podAnnotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "orderlane.image" -}}
{{- $repository := required "image.repository should name an image that the cluster can pull, as in --set image.repository=registry.example.com/orderlane: none is published, so build it with docker build and push it" .Values.image.repository }}
{{- $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "orderlane.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "orderlane.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The common part of a pod's spec: (dict "root" $ "part" "proxy" "pods" .Values.proxy). */}}
{{- define "orderlane.pod" -}}
{{- $values := .root.Values }}
{{- $security := $values.podSecurityContext }}
{{- if $values.openshift }}{{ $security = omit $security "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
serviceAccountName: {{ include "orderlane.serviceAccount" .root | quote }}
automountServiceAccountToken: {{ $values.serviceAccount.automountToken }}
enableServiceLinks: false
securityContext:
  {{- toYaml $security | nindent 2 }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with (include "orderlane.values" . | fromYaml).initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The common part of a container of the chart. */}}
{{- define "orderlane.container" -}}
image: {{ include "orderlane.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.containerSecurityContext | nindent 2 }}
{{- $values := include "orderlane.values" . | fromYaml }}
{{- with $values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.env | default list) ($values.extraEnv | default list) }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the pods of a part run: (dict "root" $ "part" "proxy" "pods" .Values.proxy). */}}
{{- define "orderlane.placement" -}}
{{- $placement := dict }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.pods $name }}{{ $_ := set $placement $name . }}{{ end }}
{{- end }}
{{- with .pods.topologySpread }}
{{- $selector := dict "matchLabels" (include "orderlane.selector" $ | fromYaml) }}
{{- $spread := list }}
{{- range . }}{{ $spread = append $spread (merge (dict "labelSelector" $selector) .) }}{{ end }}
{{- $_ := set $placement "topologySpreadConstraints" $spread }}
{{- end }}
{{- with $placement }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The claims of a StatefulSet and what happens to them: (dict "root" $ "size" "10Gi" "claim" "").
With a claim of the user's there are none. */}}
{{- define "orderlane.claims" -}}
{{- $storage := .root.Values.embedded.storage }}
{{- if not .claim -}}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $storage.className }}
      storageClassName: {{ quote . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .size }}
{{- with $storage.persistentVolumeClaimRetentionPolicy }}
{{- if or (eq .whenDeleted "Delete") (eq .whenScaled "Delete") }}
persistentVolumeClaimRetentionPolicy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Pods of one part, as a peer of a NetworkPolicy. */}}
{{- define "orderlane.peer" -}}
- podSelector:
    matchLabels:
      {{- include "orderlane.selector" . | nindent 6 }}
{{- end }}
