{{/* Addresses of the nameservers, for proxies and brokers. */}}
{{- define "orderlane.nameserver" -}}
{{- if .Values.embedded.enabled }}
{{- if .Values.nameserver }}{{ fail "nameserver should be empty while embedded.enabled is true: the chart runs its own" }}{{ end }}
{{- $name := printf "%s-nameserver" (include "orderlane.name" .) }}
{{- $addresses := list }}
{{- range $number := until (int .Values.embedded.nameserver.replicas) }}
{{- $addresses = append $addresses (printf "%s-%d.%s:9876" $name $number $name) }}
{{- end }}
{{- join "," $addresses }}
{{- else }}
{{- required "nameserver should name those of Apache RocketMQ (host:port, comma separated) while embedded.enabled is false" .Values.nameserver }}
{{- end }}
{{- end }}

{{/* Refuse settings that the chart sets itself: (dict "given" VALUES "path" "settings.listen" "own" (dict NAME WHY)). */}}
{{- define "orderlane.refuse" -}}
{{- range $name, $why := .own }}
{{- if hasKey $.given $name }}{{ fail (printf "%s.%s %s" $.path $name $why) }}{{ end }}
{{- end }}
{{- end }}

{{/* TLS files of a port below a folder: (dict "folder" "/tls/thrift" "clientCa" false "crl" false). */}}
{{- define "orderlane.portTls" -}}
certificate: {{ .folder }}/tls.crt
key: {{ .folder }}/tls.key
{{- if .clientCa }}
client_ca: {{ .folder }}/ca.crt
{{- end }}
{{- if .crl }}
crl_file: {{ .folder }}/ca.crl
{{- end }}
{{- end }}

{{/* TLS files of clients of brokers and nameservers: the authority, never the key. */}}
{{- define "orderlane.brokerTls" -}}
ca: /tls/brokers/ca.crt
verify: {{ .Values.tls.brokers.verify | default (ternary "ca" "full" .Values.embedded.enabled) }}
{{- end }}

{{/* Secret with the key that signs stored groups; empty if no groups are stored, or if the settings
name the keys. */}}
{{- define "orderlane.groupStoreSecret" -}}
{{- if and (eq (.Values.settings.group_store | default "none") "nameserver") (not .Values.settings.group_store_keys) }}
{{- .Values.secrets.groupStore.name | default (printf "%s-group-store" (include "orderlane.name" .)) }}
{{- end }}
{{- end }}

{{/* Settings of a proxy without the groups: changes need a restart. */}}
{{- define "orderlane.settings" -}}
{{- $given := .Values.settings }}
{{- $givenListen := $given.listen | default dict }}
{{- $elsewhere := dict "groups" "should be at the top of the values, as groups" "nameserver" "should be at the top of the values, as nameserver" "workers" "should be in the values as proxy.workers" }}
{{- include "orderlane.refuse" (dict "given" $given "path" "settings" "own" $elsewhere) }}
{{- $fixed := "should not be given: the chart sets this port in pods and services" }}
{{- include "orderlane.refuse" (dict "given" $givenListen "path" "settings.listen" "own" (dict "thrift" $fixed "http" $fixed)) }}
{{- $listen := dict "thrift" "0.0.0.0:9713" "http" "0.0.0.0:9714" }}
{{- $own := dict "nameserver" (include "orderlane.nameserver" .) "listen" $listen "workers" (int .Values.proxy.workers) }}
{{- if and .Values.embedded.enabled (not (hasKey $given "auto_create_groups")) }}
{{- $_ := set $own "auto_create_groups" true }}
{{- end }}
{{- with .Values.tls.thrift }}{{ if .secret }}
{{- include "orderlane.refuse" (dict "given" $givenListen "path" "settings.listen" "own" (dict "tls" "should be left out if tls.thrift.secret is given")) }}
{{- $_ := set $listen "tls" (include "orderlane.portTls" (dict "folder" "/tls/thrift" "clientCa" .clientCa "crl" .crl) | fromYaml) }}
{{- end }}{{ end }}
{{- with .Values.tls.http }}{{ if .secret }}
{{- include "orderlane.refuse" (dict "given" $givenListen "path" "settings.listen" "own" (dict "http_tls" "should be left out if tls.http.secret is given")) }}
{{- $_ := set $listen "http_tls" (include "orderlane.portTls" (dict "folder" "/tls/http" "clientCa" .clientCa "crl" .crl) | fromYaml) }}
{{- end }}{{ end }}
{{- if .Values.tls.brokers.secret }}
{{- include "orderlane.refuse" (dict "given" $given "path" "settings" "own" (dict "broker_tls" "should be left out if tls.brokers.secret is given")) }}
{{- $_ := set $own "broker_tls" (include "orderlane.brokerTls" . | fromYaml) }}
{{- end }}
{{- if .Values.secrets.tokens.name }}
{{- include "orderlane.refuse" (dict "given" $given "path" "settings" "own" (dict "tokens" "should be left out if secrets.tokens.name is given: the tokens come from that Secret")) }}
{{- end }}
{{- $secrets := $given.secrets | default list }}
{{- if .Values.secrets.files.name }}
{{- range .Values.secrets.files.keys }}
{{- $secrets = append $secrets (dict "name" . "file" (printf "/secrets/%s" .)) }}
{{- end }}
{{- end }}
{{- if include "orderlane.groupStoreSecret" . }}
{{- $secrets = append $secrets (dict "name" "chart-group-store" "file" "/group-store/key" "hosts" list) }}
{{- $_ := set $own "group_store_keys" (list "chart-group-store") }}
{{- end }}
{{- if $secrets }}
{{- $_ := set $own "secrets" $secrets }}
{{- end }}
{{- mergeOverwrite (deepCopy $given) $own | toYaml }}
{{- end }}

{{/* Settings of the embedded brokers, without those that differ between replicas. */}}
{{- define "orderlane.brokerSettings" -}}
{{- $given := .Values.embedded.settings }}
{{- $fixed := "should not be given: the chart sets it" }}
{{- include "orderlane.refuse" (dict "given" $given "path" "embedded.settings" "own" (dict "data" $fixed "listen" $fixed "http" $fixed "nameserver" $fixed "broker_name" $fixed)) }}
{{- with .Values.embedded.replication }}{{ if ne .mode "none" }}
{{- $why := "should be left out if embedded.replication.mode is not none: the chart sets it for each replica" }}
{{- include "orderlane.refuse" (dict "given" $given "path" "embedded.settings" "own" (dict "role" $why "broker_id" $why "voters" $why "replication" $why "total_replicas" $why)) }}
{{- if eq .mode "elected" }}
{{- if lt (int .replicas) 3 }}{{ fail "embedded.replication.replicas should be 3 or more with mode elected: two have no majority if one is away" }}{{ end }}
{{- $why := "should be left out with embedded.replication.mode elected: a majority of the replicas confirms messages and locks" }}
{{- include "orderlane.refuse" (dict "given" $given "path" "embedded.settings" "own" (dict "in_sync_replicas" $why "lock_in_strict_mode" $why)) }}
{{- else if lt (int .replicas) (int ($given.in_sync_replicas | default 2)) }}
{{- fail "embedded.settings.in_sync_replicas should be no more than embedded.replication.replicas" }}
{{- end }}
{{- end }}{{ end }}
{{- $own := dict "data" "/data" "listen" "0.0.0.0:10911" "http" "0.0.0.0:10914" "nameserver" (include "orderlane.nameserver" .) }}
{{- if .Values.tls.brokers.secret }}
{{- $why := "should be left out if tls.brokers.secret is given" }}
{{- include "orderlane.refuse" (dict "given" $given "path" "embedded.settings" "own" (dict "tls" $why "client_tls" $why)) }}
{{- $_ := set $own "tls" (include "orderlane.portTls" (dict "folder" "/tls/brokers" "clientCa" false "crl" false) | fromYaml) }}
{{- $_ := set $own "client_tls" (include "orderlane.brokerTls" . | fromYaml) }}
{{- end }}
{{- mergeOverwrite (deepCopy $given) $own | toYaml }}
{{- end }}

{{/* What one replica of a broker has beside them: (dict "root" $ "name" STATEFULSET "service" HEADLESS
"number" POD). Pod 0 is the master, or the voter with id 1. */}}
{{- define "orderlane.replicaSettings" -}}
{{- $replication := .root.Values.embedded.replication }}
{{- $replicas := int $replication.replicas -}}
broker_name: {{ .name }}
{{- if eq $replication.mode "elected" }}
role: elected
broker_id: {{ add1 .number }}
voters:
  {{- range $number := until $replicas }}
  - {{ printf "%d@%s-%d.%s:10911" (add1 $number) $.name $number $.service }}
  {{- end }}
{{- else }}
role: {{ ternary "slave" "master" (gt (int .number) 0) }}
broker_id: {{ .number }}
replication: {{ $replication.mode }}
total_replicas: {{ $replicas }}
{{- end }}
{{- end }}

{{/* Ports of the proxies' containers, as a list of {name, port}: (dict "root" $ "kind" "thrift"). With
several workers each also has its own; Prometheus scrapes those. */}}
{{- define "orderlane.ports" -}}
{{- $base := ternary 9713 9714 (eq .kind "thrift") }}
- { name: {{ .kind }}, port: {{ $base }} }
{{- $workers := int .root.Values.proxy.workers }}
{{- if gt $workers 1 }}
{{- range $number := untilStep 1 (add1 $workers | int) 1 }}
- { name: {{ $.kind }}-{{ $number }}, port: {{ add $base (mul 10 $number) }} }
{{- end }}
{{- end }}
{{- if eq .kind "thrift" }}
{{- with dig "listen" "producer" "" .root.Values.settings }}
- { name: producer, port: {{ splitList ":" . | last | int }} }
{{- end }}
{{- end }}
{{- end }}

{{/* Volumes and mounts for the Secrets of the values: (dict "root" $ "part" "proxy"). */}}
{{- define "orderlane.secretVolumes" -}}
{{- $values := .root.Values }}
{{- if eq .part "proxy" }}
{{- range $port := list "thrift" "http" }}
{{- with (index $values.tls $port).secret }}
- name: tls-{{ $port }}
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- end }}
{{- with include "orderlane.groupStoreSecret" .root }}
- name: group-store
  secret: { secretName: {{ . }}, defaultMode: 0440, items: [{ key: key, path: key }] }
{{- end }}
{{- with $values.secrets.files.name }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      {{- range $values.secrets.files.keys }}
      - { key: {{ . }}, path: {{ . }} }
      {{- end }}
{{- end }}
{{- end }}
{{- with $values.tls.brokers.secret }}
- name: tls-brokers
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    {{- if eq $.part "proxy" }}
    # Without the brokers' key.
    items: [{ key: ca.crt, path: ca.crt }]
    {{- end }}
{{- end }}
{{- end }}

{{- define "orderlane.secretMounts" -}}
{{- range include "orderlane.secretVolumes" . | fromYamlArray }}
- { name: {{ .name }}, mountPath: /{{ .name | replace "tls-" "tls/" }}, readOnly: true }
{{- end }}
{{- end }}
