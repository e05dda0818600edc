{{/* How a client reaches the Thrift port from inside the cluster, and what it has to present, for NOTES
and the pod of `helm test`: {host, tls, certificate, token, creates, topic, group}. creates: unknown
topics and groups are created. topic and group are empty if the chart cannot know any that works. */}}
{{- define "orderlane.client" -}}
{{- $settings := include "orderlane.settings" . | fromYaml }}
{{- $given := .Values.settings }}
{{- $tls := dig "listen" "tls" "" $settings }}
{{- $token := or .Values.secrets.tokens.name $given.tokens $given.jwt | empty | not }}
{{- $certificate := and $tls $tls.client_ca | empty | not }}
{{- $creates := and .Values.embedded.enabled $settings.auto_create_groups .Values.embedded.settings.auto_create_topics | empty | not }}
{{- $topic := "" }}
{{- $group := "" }}
{{- if .Values.groups }}
{{- $group = (first .Values.groups).name }}
{{- $topic = (first (first .Values.groups).topics).name }}
{{- else if $creates }}
{{- $group = "billing" }}
{{- $topic = "orders" }}
{{- end }}
{{- $host := printf "%s-proxy.%s.svc" (include "orderlane.name" .) .Release.Namespace }}
{{- dict "host" $host "tls" (empty $tls | not) "certificate" $certificate "token" $token "creates" $creates "topic" $topic "group" $group | toYaml }}
{{- end }}

{{/* Options of a command for messages: (dict "root" $ "client" CLIENT). */}}
{{- define "orderlane.clientOptions" -}}
{{- $client := .client }}
{{- $options := list }}
{{- if $client.tls }}
{{- $ca := ternary "/tls/thrift/ca.crt" "CA" (empty .root.Values.tls.thrift.secret | not) }}
{{- $options = list "--proxy" (printf "%s:9713" $client.host) "--tls-ca" $ca }}
{{- end }}
{{- if $client.certificate }}{{ $options = concat $options (list "--tls-certificate" "CERTIFICATE" "--tls-key" "KEY") }}{{ end }}
{{- if $client.token }}{{ $options = concat $options (list "--token" "TOKEN") }}{{ end }}
{{- range $options }} {{ . }}{{ end }}
{{- end }}

{{/* A container of the pod of `helm test`: (dict "part" PART "tls" BOOLEAN). */}}
{{- define "orderlane.testContainer" -}}
{{- include "orderlane.container" .part }}
resources:
  requests: { cpu: 50m, memory: 64Mi }
  limits: { memory: 256Mi }
{{- if .tls }}
volumeMounts:
  - { name: tls-thrift, mountPath: /tls/thrift, readOnly: true }
{{- end }}
{{- end }}
