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

{{/* All of `mmcache serve`'s file: what the chart knows, and over it what values say. */}}
{{- define "mmcache.proxy.config" -}}
{{- $known := dict
  "server" (dict "host" "0.0.0.0" "port" 8090 "admin_token_env" "MMCACHE_ADMIN_TOKEN")
  "trust" (dict "secret_env" "MMCACHE_REALM_SECRET")
  "cache" dict "upstream" dict -}}
{{- if .Values.cluster.enabled -}}
{{- $shared := printf "valkey://%s.%s.svc:6379?cluster=true" (include "mmcache.cluster" .) .Release.Namespace -}}
{{- $_ := set $known "cache" (dict "shared" $shared) -}}
{{- end -}}
{{- if .Values.dashboard.enabled -}}
{{- $otlp := printf "http://%s-dashboard.%s.svc:4318" (include "mmcache.fullname" .) .Release.Namespace -}}
{{- $_ := set $known "telemetry" (dict "otlp" $otlp "token_env" "MMCACHE_INGEST_TOKEN" "sample" .Values.dashboard.sample "service" (include "mmcache.fullname" .)) -}}
{{- end -}}
{{- if not .Values.proxy.upstream.existingSecret -}}
{{- $_ := set $known "upstream" (dict "url" .Values.proxy.upstream.url) -}}
{{- end -}}
{{- $all := mergeOverwrite $known (deepCopy .Values.proxy.config) -}}
{{- range $table := keys $all | sortAlpha -}}
{{- include "mmcache.toml.table" (list $table (index $all $table)) -}}
{{- end -}}
{{- end -}}
