{{/* A value as TOML has it. helm hands whole numbers on as floats: 8090 must not become 8090.0. */}}
{{- define "mmcache.toml.value" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) -}}{{ int64 . }}{{- else -}}{{ toRawJson . }}{{- end -}}
{{- else -}}{{ toRawJson . }}{{- end -}}
{{- end -}}

{{/* Called with (list "name" $table): its values; the tables in it come after them. */}}
{{- define "mmcache.toml.table" -}}
{{- $name := index . 0 -}}
{{- $table := index . 1 -}}
{{- $tables := list -}}
{{- $lines := list -}}
{{- range $key := keys $table | sortAlpha -}}
{{- $value := index $table $key -}}
{{- if kindIs "map" $value -}}
{{- $tables = append $tables $key -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $lines = append $lines (printf "%s = %s" $key (include "mmcache.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{{- if $lines }}
[{{ $name }}]
{{ join "\n" $lines }}
{{ end -}}
{{- range $key := $tables -}}
{{- include "mmcache.toml.table" (list (printf "%s.%s" $name (toRawJson $key)) (index $table $key)) -}}
{{- end -}}
{{- end -}}

{{/* `[cache.shared]` as JSON: where it is, and how it is trusted. {} where nothing is shared. */}}
{{- define "mmcache.proxy.shared" -}}
{{- $said := dig "shared" "" (default dict .Values.proxy.config.cache) -}}
{{- $table := dict -}}
{{- if kindIs "map" $said -}}
{{- $table = deepCopy $said -}}
{{- else if $said -}}
{{- $_ := set $table "url" $said -}}
{{- end -}}
{{- if and .Values.cluster.enabled (not $table.url) -}}
{{- $scheme := ternary "valkeys" "valkey" (not (empty .Values.cluster.spec.tls)) -}}
{{- $_ := set $table "url" (printf "%s://%s.%s.svc:6379?cluster=true" $scheme (include "mmcache.cluster" .) .Release.Namespace) -}}
{{- end -}}
{{- $tls := include "mmcache.proxy.tls" . | fromJson -}}
{{- with $tls.name -}}
{{- $_ := set $table "tls_name" (default . $table.tls_name) -}}
{{- end -}}
{{- if and (or $tls.secret $tls.configMap) (not $table.tls_ca) -}}
{{- $_ := set $table "tls_ca" "/etc/mmcache-authority/ca.crt" -}}
{{- end -}}
{{- if $tls.client -}}
{{- $_ := set $table "tls_cert" "/etc/mmcache-client/tls.crt" -}}
{{- $_ := set $table "tls_key" "/etc/mmcache-client/tls.key" -}}
{{- end -}}
{{- toJson $table -}}
{{- end -}}

{{/* values.proxy.sharedTls as JSON, with what is meant where nothing is said: the authority of the release's own nodes, which
all have one certificate. A pod's address can be in none. */}}
{{- define "mmcache.proxy.tls" -}}
{{- $said := .Values.proxy.sharedTls -}}
{{- $made := dict "secret" $said.authority.existingSecret "configMap" $said.authority.existingConfigMap
  "key" $said.authority.key "client" $said.client.existingSecret "name" $said.name -}}
{{- $shared := dig "shared" "" (default dict .Values.proxy.config.cache) -}}
{{- $url := ternary (dig "url" "" (ternary $shared dict (kindIs "map" $shared))) $shared (kindIs "map" $shared) -}}
{{- if and .Values.cluster.enabled .Values.cluster.spec.tls (not $url) -}}
{{- if not $made.name -}}
{{- $_ := set $made "name" (printf "%s.%s.svc" (include "mmcache.cluster" .) .Release.Namespace) -}}
{{- end -}}
{{- if not (or $made.secret $made.configMap) -}}
{{- $_ := set $made "secret" .Values.cluster.spec.tls.secretName -}}
{{- $_ := set $made "key" "ca.crt" -}}
{{- end -}}
{{- end -}}
{{- toJson $made -}}
{{- end -}}

{{/* All of `mmcache serve`'s file: what the chart knows, and over it what values say. */}}
{{- define "mmcache.proxy.config" -}}
{{- $known := dict
  "server" (dict "host" "0.0.0.0" "port" 8090 "admin_token_env" "MMCACHE_ADMIN_TOKEN")
  "trust" (dict "secret_env" "MMCACHE_REALM_SECRET")
  "cache" dict "upstream" dict -}}
{{- if .Values.dashboard.enabled -}}
{{- $otlp := printf "http://%s-dashboard.%s.svc:4318" (include "mmcache.fullname" .) .Release.Namespace -}}
{{- $_ := set $known "telemetry" (dict "otlp" $otlp "token_env" "MMCACHE_INGEST_TOKEN" "sample" .Values.dashboard.sample "service" (include "mmcache.fullname" .)) -}}
{{- end -}}
{{- if not .Values.proxy.upstream.existingSecret -}}
{{- $_ := set $known "upstream" (dict "url" .Values.proxy.upstream.url) -}}
{{- end -}}
{{- $all := mergeOverwrite $known (deepCopy .Values.proxy.config) -}}
{{- with include "mmcache.proxy.shared" . | fromJson -}}
{{- $_ := set $all.cache "shared" (ternary .url . (eq (len .) 1)) -}}
{{- end -}}
{{- range $table := keys $all | sortAlpha -}}
{{- include "mmcache.toml.table" (list $table (index $all $table)) -}}
{{- end -}}
{{- end -}}
