{{/* Image of a program: its values. */}}
{{- define "hostler.image" -}}
{{- $image := index . 1 -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) -}}
{{- end }}

{{/* Configuration of a program: its values, and the file that is shipped. Logs and the export have switches of their own. */}}
{{- define "hostler.configuration" -}}
{{- $program := index . 1 -}}
{{- $text := $program.config | default ((index . 0).Files.Get (index . 2)) -}}
{{- with $program.logLevel -}}
{{- $text = $text | replace "[log]\n" (printf "[log]\nlevel = %q\n" .) -}}
{{- end -}}
{{- with $program.extraConfig -}}
{{- $text = printf "%s\n%s" $text . -}}
{{- end -}}
{{- if and $program.topology (not (contains "topology_export" $text)) -}}
{{- $text = printf "%s\n[topology_export]\nenabled = true\n" $text -}}
{{- end -}}
{{- $text -}}
{{- end }}
