{{/* The name of the application. */}}
{{- define "piraeus-ha-controller.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of what is created, as in 1.x. Some names in Kubernetes have 63 characters at most. */}}
{{- define "piraeus-ha-controller.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of roles and their bindings. It differs from that of 1.x, whose ClusterRole had the name of the ServiceAccount. */}}
{{- define "piraeus-ha-controller.roleName" -}}
{{- printf "%s-manager" (include "piraeus-ha-controller.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{- define "piraeus-ha-controller.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "piraeus-ha-controller.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "piraeus-ha-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "piraeus-ha-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "piraeus-ha-controller.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "piraeus-ha-controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The address of LINSTOR. */}}
{{- define "piraeus-ha-controller.linstorEndpoint" -}}
{{- if .Values.linstor.endpoint }}
{{- .Values.linstor.endpoint }}
{{- else if .Values.linstor.clientSecret -}}
https://linstor-controller.piraeus-datastore.svc:3371
{{- else -}}
http://linstor-controller.piraeus-datastore.svc:3370
{{- end }}
{{- end }}

{{/* The options of the program by kebab-case name, as YAML. As in 1.x, camel case is understood as well. */}}
{{- define "piraeus-ha-controller.options" -}}
{{- $options := dict }}
{{- range $name, $value := .Values.options }}
{{- $_ := set $options (kebabcase $name) $value }}
{{- end }}
{{- toYaml $options }}
{{- end }}

{{/* One option as arguments: a list gives one for each of its values, and a number has no exponent. */}}
{{- define "piraeus-ha-controller.argument" -}}
{{- range (kindIs "slice" .value | ternary .value (list .value)) }}
- {{ printf "--%s=%s" $.name (kindIs "float64" . | ternary (printf "%v" (int64 (kindIs "float64" . | ternary . 0))) (toString .)) | quote }}
{{- end }}
{{- end }}

{{/* The port of the metrics, empty where they are off. */}}
{{- define "piraeus-ha-controller.metricsPort" -}}
{{- $options := include "piraeus-ha-controller.options" . | fromYaml }}
{{- $address := hasKey $options "metrics-bind-address" | ternary (get $options "metrics-bind-address" | toString) ":8443" }}
{{- if contains ":" $address }}
{{- regexFind "[0-9]+$" $address }}
{{- end }}
{{- end }}

{{/* Labels and annotations of what Prometheus and Grafana look for, with those of the values and "more" labels. */}}
{{- define "piraeus-ha-controller.monitoringMetadata" -}}
labels:
  {{- include "piraeus-ha-controller.labels" . | nindent 2 }}
  {{- with merge (dict) .Values.monitoring.labels (.more | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.monitoring.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
