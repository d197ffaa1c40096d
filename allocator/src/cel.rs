//! CEL expressions over a device, as Kubernetes compiles and runs them.
