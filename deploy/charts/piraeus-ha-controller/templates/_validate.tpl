{{/*
Fails where a value means nothing any more, or two values contradict each other, and says what to do. Each template begins with it,
because Helm renders them in an order of its own.
*/}}
{{- define "piraeus-ha-controller.validate" -}}
{{- if not (hasKey .Values "monitoring") }}
{{- fail "Values of an older chart are used without the defaults of this one: use --reset-then-reuse-values in place of --reuse-values." }}
{{- end }}
{{- if .Values.securityContext.privileged }}
{{- fail "securityContext.privileged: the controller of 2.x talks to LINSTOR and Kubernetes only and is never privileged, unlike the node agents of 1.x. Remove the value." }}
{{- end }}
{{- if regexMatch "^v?[01]\\." (toString .Values.image.tag) }}
{{- fail (printf "image.tag: %s is an image of 1.x or older, and this chart is for 2.x. Leave the tag empty to take the one that the chart was tested with." .Values.image.tag) }}
{{- end }}
{{- $options := include "piraeus-ha-controller.options" . | fromYaml }}
{{- if and .Values.manageAllPods (hasKey $options "pod-label-selector") }}
{{- fail "manageAllPods and options.pod-label-selector both say which pods are moved: set only one of them." }}
{{- end }}
{{- if and (hasKey .Values.podDisruptionBudget "minAvailable") (hasKey .Values.podDisruptionBudget "maxUnavailable") }}
{{- fail "podDisruptionBudget: set minAvailable or maxUnavailable, not both." }}
{{- end }}
{{- end }}
