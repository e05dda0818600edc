{{- define "orderlane.name" -}}
{{- if contains "orderlane" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-orderlane" (.Release.Name | trunc 30 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* Labels of everything; and, with "part", of one part: (dict "root" $ "part" "proxy"). */}}
{{- define "orderlane.labels" -}}
{{ include "orderlane.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "orderlane.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "orderlane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where the nameservers are, for proxies and brokers. */}}
{{- define "orderlane.nameserver" -}}
{{- if .Values.embedded.enabled }}
{{- if .Values.nameserver }}{{ fail "nameserver should be empty while embedded.enabled is true: the chart runs its own" }}{{ end }}
{{- include "orderlane.name" . }}-nameserver:9876
{{- else }}
{{- required "nameserver should name those of Apache RocketMQ (host:port, comma separated) where embedded.enabled is false" .Values.nameserver }}
{{- end }}
{{- end }}

{{/* Settings of a proxy but for the groups: what can be changed by a restart only. */}}
{{- define "orderlane.settings" -}}
{{- if hasKey .Values.settings "groups" }}{{ fail "settings.groups should stand at the top of the values, as groups" }}{{ end }}
{{- if hasKey .Values.settings "nameserver" }}{{ fail "settings.nameserver should stand at the top of the values, as nameserver" }}{{ end }}
{{- if hasKey .Values.settings "workers" }}{{ fail "settings.workers should stand in the values as proxy.workers" }}{{ end }}
{{- $listen := dict "thrift" "0.0.0.0:9713" "http" "0.0.0.0:9714" }}
{{- $own := dict "nameserver" (include "orderlane.nameserver" .) "listen" $listen "workers" (int .Values.proxy.workers) }}
{{- mergeOverwrite (deepCopy .Values.settings) $own | toYaml }}
{{- end }}

{{- define "orderlane.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "orderlane.containerSecurity" -}}
image: {{ include "orderlane.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* nodeSelector, tolerations and affinity of a part, where they are given. */}}
{{- define "orderlane.placement" -}}
{{- $placement := dict }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $ $name }}{{ $_ := set $placement $name . }}{{ end }}
{{- end }}
{{- with $placement }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The volume "data" of a StatefulSet's pods: size and className. */}}
{{- define "orderlane.volume" -}}
- metadata:
    name: data
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .className }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .size }}
{{- end }}
