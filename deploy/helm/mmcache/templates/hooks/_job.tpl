{{/* A Job that helm waits for, and what it may do. Called with (list $ "name" "hooks" $args $rules $cluster-wide). */}}
{{- define "mmcache.job" -}}
{{- $top := index . 0 -}}
{{- $component := index . 1 -}}
{{- $name := printf "%s-%s" (include "mmcache.fullname" $top) $component -}}
{{- $hooks := index . 2 -}}
{{- $wide := index . 5 -}}
{{- $scoped := ternary (printf "%s.%s" $name $top.Release.Namespace) $name $wide -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  {{- include "mmcache.hook" (list $top $component $hooks "-2") | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "ClusterRole" "Role" $wide }}
metadata:
  name: {{ $scoped }}
  {{- include "mmcache.hook" (list $top $component $hooks "-2") | nindent 2 }}
rules:
  {{- toYaml (index . 4) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "ClusterRoleBinding" "RoleBinding" $wide }}
metadata:
  name: {{ $scoped }}
  {{- include "mmcache.hook" (list $top $component $hooks "-1") | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ ternary "ClusterRole" "Role" $wide }}
  name: {{ $scoped }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $top.Release.Namespace }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  {{- include "mmcache.hook" (list $top $component $hooks "0") | nindent 2 }}
spec:
  backoffLimit: 2
  template:
    metadata:
      labels:
        {{- include "mmcache.labels" (list $top $component) | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      {{- include "mmcache.pod" (list $top "operator") | nindent 6 }}
      containers:
        - name: {{ $component }}
          {{- include "mmcache.container" $top | nindent 10 }}
          args:
            {{- toYaml (index . 3) | nindent 12 }}
          env:
            - {name: HOME, value: /tmp}
          resources:
            {{- toYaml $top.Values.operator.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* Called with (list $ "component" "hooks" "weight"). */}}
{{- define "mmcache.hook" -}}
labels:
  {{- include "mmcache.labels" (list (index . 0) (index . 1)) | nindent 2 }}
annotations:
  helm.sh/hook: {{ index . 2 }}
  helm.sh/hook-weight: {{ index . 3 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
