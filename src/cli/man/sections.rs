//! What every page says at its end.

/// Files and variables, whatever the command: they are the same for all.
pub(super) const FILES_AND_ENVIRONMENT: &str = r#".SH FILES
.TP
.I /etc/hostler/hostler.toml
The configuration; see
.BR hostler.toml (5).
.TP
.I /etc/hostler/claims/
Manifests of claims, on hosts without Kubernetes.
.TP
.I /var/lib/hostler/
Records of claims, drained devices, bitstreams. They survive a reboot.
.TP
.I /var/run/cdi/
CDI files, one per claim, for container runtimes.
.TP
.I /run/hostler/admin.sock
Where the daemon listens for these commands; for root alone.
.TP
.I /run/hostler/metrics.sock
Figures and probes, for root and the group hostler.
.SH ENVIRONMENT
.TP
.B HOSTLER_NODE_NAME
The node's name where the configuration has none.
.TP
.B NO_COLOR
With any value but an empty one: no colours, also on terminals. Pipes and files never get any.
.TP
.B TERM
A terminal that is called dumb gets no colours.
.TP
.B JOURNAL_STREAM
Set by systemd. Where it means standard error, lines of the log have a priority in front, as in
.BR sd\-daemon (3).
.TP
.B HOSTLER_COMPLETE
Set by the completion scripts of shells while they ask.
.SH "SEE ALSO"
.BR hostler (1),
.BR hostler.toml (5)
"#;
