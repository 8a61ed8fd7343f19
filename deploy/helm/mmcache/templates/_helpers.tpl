{{- define "mmcache.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The beginning of every name. Short: shards and replicas are numbered behind it. */}}
{{- define "mmcache.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "mmcache.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "mmcache.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "mmcache.cluster" -}}
{{- default (include "mmcache.fullname" .) .Values.cluster.name -}}
{{- end -}}

{{/* Never change these: a Deployment's selector is fixed. Called with (list $ "component"). */}}
{{- define "mmcache.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ include "mmcache.name" $top }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "mmcache.labels" -}}
{{- $top := index . 0 -}}
{{ include "mmcache.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: mmcache
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" }}
{{- with $top.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of the pods that the operator makes for the release's cluster. */}}
{{- define "mmcache.nodes" -}}
mmcache.dev/cluster: {{ include "mmcache.cluster" . }}
{{- end -}}

{{- define "mmcache.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mmcache.container" -}}
image: {{ include "mmcache.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Of every pod. Called with (list $ "what of values places it"). */}}
{{- define "mmcache.pod" -}}
{{- $top := index . 0 -}}
{{- $place := index $top.Values (index . 1) -}}
{{- with $top.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
enableServiceLinks: false
{{- with $place.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $place.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $place.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $place.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "mmcache.authSecret" -}}
{{- default (printf "%s-auth" (include "mmcache.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "mmcache.proxySecret" -}}
{{- default (printf "%s-proxy" (include "mmcache.fullname" .)) .Values.proxy.existingSecret -}}
{{- end -}}

{{- define "mmcache.dashboardSecret" -}}
{{- default (printf "%s-dashboard" (include "mmcache.fullname" .)) .Values.dashboard.existingSecret -}}
{{- end -}}

{{/* A value of a Secret that is there already, so that upgrades keep it. Called with (list $ "secret" "key"). */}}
{{- define "mmcache.kept" -}}
{{- $top := index . 0 -}}
{{- $found := lookup "v1" "Secret" $top.Release.Namespace (index . 1) -}}
{{- if and $found $found.data -}}
{{- get $found.data (index . 2) -}}
{{- end -}}
{{- end -}}

{{/* Whether the API server evaluates rules of the definition itself: CEL, from 1.25 on. */}}
{{- define "mmcache.cel" -}}
{{- if semverCompare ">=1.25-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{- define "mmcache.webhook" -}}
{{- $asked := toString .Values.operator.webhook.enabled -}}
{{- if and .Values.operator.enabled (or (eq $asked "true") (and (eq $asked "auto") (not (include "mmcache.cel" .)))) -}}true{{- end -}}
{{- end -}}

{{/* Called with (list $ value): auto = where the Prometheus operator's kinds are served. */}}
{{- define "mmcache.monitored" -}}
{{- $asked := toString (index . 1) -}}
{{- $served := (index . 0).Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if or (eq $asked "true") (and (eq $asked "auto") $served) -}}true{{- end -}}
{{- end -}}

{{- define "mmcache.policyVersion" -}}
{{- if semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version -}}policy/v1{{- else -}}policy/v1beta1{{- end -}}
{{- end -}}

{{/* Names are asked for anywhere: where a cluster's DNS is differs. */}}
{{- define "mmcache.dns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}
