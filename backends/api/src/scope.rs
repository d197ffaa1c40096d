//! The most that a backend can give containers. Claim records are checked against this limit: a record that was
//! damaged or forged must not bring into a CDI file what its backend would never have put there.

use hostler_cdi::{ContainerEdits, DeviceNode};

/// Wildcard in a path for a decimal number.
const NUMBER: char = '#';

/// Edits that no backend in this state of things gives.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it gives containers {what}, which its backend never does")]
pub struct ForeignEdits {
    /// The part that is foreign.
    pub what: String,
}

/// Edits that containers can be given. The default is nothing. Neither hooks nor network interfaces nor groups nor
/// cache classes: hooks are the daemon's alone, and no backend gives any of the others.
#[derive(Clone, Debug, Default)]
pub struct EditScope {
    nodes: Vec<String>,
    env: bool,
    exactly: Option<ContainerEdits>,
}

impl EditScope {
    /// Allows device nodes under their own path, with nothing else said of them. `#` in a path stands for a number:
    /// `/dev/dax#.#`.
    pub fn nodes<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Self { nodes: patterns.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Allows just these edits, or any part of them.
    pub fn exactly(edits: ContainerEdits) -> Self {
        Self { exactly: Some(edits), ..Self::default() }
    }

    /// Allows any environment variables as well.
    #[must_use]
    pub fn with_env(self) -> Self {
        Self { env: true, ..self }
    }

    /// Checks edits against this scope.
    ///
    /// # Errors
    /// When the edits hold more; the error says what.
    pub fn check(&self, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        let none = ContainerEdits::default();
        let exactly = self.exactly.as_ref().unwrap_or(&none);
        let foreign = |what: String| Err(ForeignEdits { what });
        // Not even one that is known: a program that runs as root on the host is the daemon's to give.
        if let Some(hook) = edits.hooks.first() {
            return foreign(format!("the hook {}", hook.path));
        }
        let is_given = |node: &&DeviceNode| exactly.device_nodes.contains(node) || self.gives(node);
        if let Some(node) = edits.device_nodes.iter().find(|node| !is_given(node)) {
            return foreign(told(node));
        }
        if let Some(mount) = beyond(&edits.mounts, &exactly.mounts) {
            return foreign(format!("a mount of {}", mount.host_path));
        }
        if let Some(variable) = beyond(&edits.env, &exactly.env).filter(|_| !self.env) {
            return foreign(format!("the variable {}", variable.split('=').next().unwrap_or_default()));
        }
        if let Some(device) = edits.net_devices.first() {
            return foreign(format!("the network interface {}", device.host_interface_name));
        }
        if let Some(group) = edits.additional_gids.first() {
            return foreign(format!("the group {group}"));
        }
        if edits.intel_rdt.is_some() { foreign("a cache class".to_owned()) } else { Ok(()) }
    }

    /// True if the scope gives the node. One that comes with more than its path may be another node in truth.
    fn gives(&self, node: &DeviceNode) -> bool {
        let plain = DeviceNode { path: node.path.clone(), ..DeviceNode::default() };
        *node == plain && self.nodes.iter().any(|pattern| fits(pattern, &node.path))
    }
}

fn beyond<'a, T: PartialEq>(given: &'a [T], known: &[T]) -> Option<&'a T> {
    given.iter().find(|edit| !known.contains(edit))
}

fn told(node: &DeviceNode) -> String {
    match &node.host_path {
        Some(host) if *host != node.path => format!("the device node {host} as {}", node.path),
        _ => format!("the device node {}", node.path),
    }
}

/// True if `path` is `pattern` with a number in the place of each [`NUMBER`].
fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split(NUMBER);
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    for part in parts {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        match rest[digits..].strip_prefix(part) {
            Some(after) if digits > 0 => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use hostler_cdi::{CdiHook, CdiMount, HookName, NetDevice};

    use super::*;

    fn node(path: &str) -> ContainerEdits {
        let node = DeviceNode { path: path.to_owned(), ..DeviceNode::default() };
        ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() }
    }

    fn refusal(scope: &EditScope, edits: &ContainerEdits) -> String {
        scope.check(edits).unwrap_err().what
    }

    #[test]
    fn nodes_are_known_by_the_shape_of_their_path() {
        let scope = EditScope::nodes(["/dev/dax#.#", "/dev/vfio/vfio", "/dev/vfio/#"]);
        for path in ["/dev/dax0.0", "/dev/dax12.345", "/dev/vfio/vfio", "/dev/vfio/7"] {
            scope.check(&node(path)).unwrap();
        }
        for path in [
            "/dev/mem",
            "/dev/dax",
            "/dev/dax0",
            "/dev/dax0.",
            "/dev/dax.0",
            "/dev/dax0.0/../mem",
            "/dev/dax0.0x",
            "/dev/vfio/",
            "/dev/vfio/vfio1",
            "dev/vfio/7",
            "/dev/vfio/-7",
            "/dev/vfio/7\n",
        ] {
            assert_eq!(refusal(&scope, &node(path)), format!("the device node {path}"));
        }
    }

    #[test]
    fn a_node_that_is_another_in_truth_is_foreign() {
        let scope = EditScope::nodes(["/dev/dax#.#"]);
        let change = |change: &dyn Fn(&mut DeviceNode)| {
            let mut edits = node("/dev/dax0.0");
            change(&mut edits.device_nodes[0]);
            edits
        };
        let other = change(&|node| node.host_path = Some("/dev/mem".to_owned()));
        assert_eq!(refusal(&scope, &other), "the device node /dev/mem as /dev/dax0.0");
        scope.check(&change(&|node| (node.major, node.minor) = (Some(1), Some(1)))).unwrap_err();
        scope.check(&change(&|node| node.node_type = Some("b".to_owned()))).unwrap_err();
        scope.check(&change(&|node| node.permissions = Some("m".to_owned()))).unwrap_err();
    }

    #[test]
    fn nothing_else_is_given_that_is_not_named() {
        let none = ContainerEdits::default();
        let hook = CdiHook {
            hook_name: HookName::CreateRuntime,
            path: "/bin/sh".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            timeout: None,
        };
        let mount = CdiMount { host_path: "/".to_owned(), container_path: "/host".to_owned(), ..CdiMount::default() };
        let net = NetDevice { host_interface_name: "eth0".to_owned(), name: "eth0".to_owned() };
        let foreign = [
            (ContainerEdits { hooks: vec![hook.clone()], ..none.clone() }, "the hook /bin/sh"),
            (ContainerEdits { mounts: vec![mount.clone()], ..none.clone() }, "a mount of /"),
            (ContainerEdits { env: vec!["LD_PRELOAD=/x".to_owned()], ..none.clone() }, "the variable LD_PRELOAD"),
            (ContainerEdits { net_devices: vec![net], ..none.clone() }, "the network interface eth0"),
            (ContainerEdits { additional_gids: vec![0], ..none.clone() }, "the group 0"),
            (ContainerEdits { intel_rdt: Some(Box::default()), ..none.clone() }, "a cache class"),
        ];
        for (edits, what) in &foreign {
            assert_eq!(refusal(&EditScope::default(), edits), *what);
        }
        let known =
            ContainerEdits { mounts: vec![mount], env: vec!["A=b".to_owned()], hooks: vec![hook], ..none.clone() };
        EditScope::exactly(known.clone()).check(&ContainerEdits { hooks: Vec::new(), ..known.clone() }).unwrap();
        assert_eq!(refusal(&EditScope::exactly(known.clone()), &known), "the hook /bin/sh", "not even a known one");
        EditScope::default().with_env().check(&foreign[2].0).unwrap();
        EditScope::default().check(&none).unwrap();
    }
}
