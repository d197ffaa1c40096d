//! The life of a driver on a node, with a kubelet that does what the kubelet does, an API server, and the real binary.
//!
//! The API server is one of the test's own, or a real one that `HOSTLER_E2E_KUBECONFIG` names; there, tests stay within
//! a namespace, a node and a driver of their own, and tests that cause failures of the server are skipped. The
//! kubelet's pauses are cut to a two-hundredth ([`scene::HASTE`]), its deadlines are the real ones.
//!
//! | Case | Told in |
//! |---|---|
//! | the kubelet restarts; the daemon stops, dies, comes first, comes later | [`registration`] |
//! | the daemon is too slow to answer GetInfo | [`registration`] |
//! | the kubelet refuses the registration | `kubelet_services`: only a broken daemon is refused, so the refusal is made by hand |
//! | the service listens only after the registration, in the same folder or another | not possible: both listen before either can be seen |
//! | socket files are deleted; others' files and dead sockets lie beside them | [`registration`] |
//! | one connection serves all calls and health | [`registration`] |
//! | a server of the daemon's fails | `kubelet_services`, `daemon`: the daemon ends, and is started again |
//! | a gRPC client's own idea of `:authority` | `kubelet_services`, byte by byte |
//! | another root folder of the kubelet; driver names of 28, 37, 60 and 63 characters | [`registration`] |
//! | a pod comes while the kubelet is down, or before its driver | [`prepare`] |
//! | prepare is too slow, fails, fails across a restart of the kubelet | [`prepare`] |
//! | a pod goes while the kubelet is down, or in the middle of its prepare | [`prepare`] |
//! | one claim of several pods, one after the other and at once; several claims of one pod | [`prepare`] |
//! | one claim twice in one request, one claim in concurrent calls | `kubelet_services`, `daemon` |
//! | a claim made anew under its old name; one without an allocation; one given away twice | [`prepare`] |
//! | two drivers: both work, one fails, the kubelet restarts in the middle | [`prepare`] |
//! | the daemon is killed at every step; between any two durable steps | [`prepare`]; `crash` |
//! | records are corrupt, cut off, of a newer version | `crash` |
//! | the disk is full | [`prepare`]; batch by batch in `crash` |
//! | drivers' parameters in every spelling, and what becomes of the claim's status | [`status`] |
//! | a device is pulled out before, and under, its pod | [`prepare`], [`unprepare`], [`slices`], [`health`] |
//! | unprepare is too slow, fails, fails across a restart of the kubelet | [`unprepare`] |
//! | pods are deleted, by force, while the kubelet is down, while both are down | [`unprepare`] |
//! | the claim's object is gone; the claim was never prepared | [`unprepare`] |
//! | the kubelet deletes slices: at its start, after a disconnect; or does not, after a short one | [`slices`] |
//! | slices are deleted or changed by others; nothing happens | [`slices`] |
//! | hundreds of devices, and their allocation up to the last unit | [`slices`] |
//! | conflicts, 429, 5xx, resets, lost answers, 410, broken watches | [`trouble`]; fields of gates that are off: `cluster_slices` |
//! | health changes, ends with the daemon, comes back, of several pods, in both versions | [`health`] |
//! | health without its feature gate | not ours: the kubelet does not ask |
//! | 10,000 devices' health; readers that do not read | [`health`]; `kubelet_services` |
//! | no share id, one, two of one device in one claim, old kubelets | [`share_id`] |
//! | the API server is away, silent, comes later | [`outage`] |
//! | running pods while daemon or kubelet restart; a reboot; an upgrade of the kubelet | [`restart`] |
//! | one daemon replaces another, under load, in vain, while the kubelet restarts | [`upgrade`] |
//! | devices without a NUMA node, memory without CPUs, long PCI domains | unit tests of `hostler-linux` |
//! | metrics of the kubelet; the PodResources API | not ours |

mod disk;
mod health;
mod outage;
mod prepare;
mod registration;
mod restart;
mod scene;
mod share_id;
mod slices;
mod status;
mod trouble;
mod unprepare;
mod upgrade;
