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

{{/* Where the pods of a part run: (dict "root" $ "part" "proxy" "values" .Values.proxy). */}}
{{- define "orderlane.placement" -}}
{{- $placement := dict }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.values $name }}{{ $_ := set $placement $name . }}{{ end }}
{{- end }}
{{- with .values.topologySpread }}
{{- $selector := dict "matchLabels" (include "orderlane.selector" $ | fromYaml) }}
{{- $spread := list }}
{{- range . }}{{ $spread = append $spread (merge (dict "labelSelector" $selector) .) }}{{ end }}
{{- $_ := set $placement "topologySpreadConstraints" $spread }}
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

{{/* Pods of one part, as a peer of a NetworkPolicy. */}}
{{- define "orderlane.peer" -}}
- podSelector:
    matchLabels:
      {{- include "orderlane.selector" . | nindent 6 }}
{{- end }}
