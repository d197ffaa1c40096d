//! Rules on what claim records can bring into a container: what was prepared, and nothing that was put into a record.

use hostler_cdi::{CdiHook, CdiMount, DeviceNode, HookName, NetDevice};

use super::{Run, cycle::Claim};
use crate::{ContainerEdits, Device};

/// Checks that the edits of a prepared claim are known as the backend's own, and that nothing can be added to them.
pub(super) fn check(run: &Run<'_>, device: &Device, claim: &Claim, edits: &ContainerEdits) {
    let before = run.observe();
    let backend = run.restarted();
    if let Err(foreign) = backend.check_edits(&claim.verify(), edits) {
        run.broken("check_edits knows what prepare has given", Some(&device.name), foreign);
    }
    for (what, forged) in forged(edits) {
        if backend.check_edits(&claim.verify(), &forged).is_ok() {
            run.broken("check_edits refuses what prepare never gives", Some(&device.name), what);
        }
    }
    run.same_state("check_edits has no side effects", Some(&device.name), &before);
}

/// What somebody would add who can write a record.
fn forged(edits: &ContainerEdits) -> Vec<(&'static str, ContainerEdits)> {
    let with = |add: &dyn Fn(&mut ContainerEdits)| {
        let mut forged = edits.clone();
        add(&mut forged);
        forged
    };
    let own = edits.device_nodes.first().map_or_else(|| "/dev/null".to_owned(), |node| node.path.clone());
    let node = |path: &str| DeviceNode { path: path.to_owned(), ..DeviceNode::default() };
    let behind = DeviceNode { host_path: Some("/dev/mem".to_owned()), ..node(&own) };
    let numbered = DeviceNode { node_type: Some("c".to_owned()), major: Some(1), minor: Some(1), ..node(&own) };
    let above = node(&format!("{own}/../mem"));
    let mount = |host: &str| CdiMount {
        host_path: host.to_owned(),
        container_path: "/forged".to_owned(),
        ..CdiMount::default()
    };
    let hook = CdiHook {
        hook_name: HookName::CreateRuntime,
        path: "/bin/sh".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        timeout: None,
    };
    let net = NetDevice { host_interface_name: "eth0".to_owned(), name: "forged".to_owned() };
    vec![
        ("a hook is let through", with(&|edits| edits.hooks.push(hook.clone()))),
        ("/dev/mem is let through", with(&|edits| edits.device_nodes.push(node("/dev/mem")))),
        ("/dev/mem under another name is let through", with(&|edits| edits.device_nodes.push(behind.clone()))),
        ("/dev/mem by its number is let through", with(&|edits| edits.device_nodes.push(numbered.clone()))),
        ("a path that leads upwards is let through", with(&|edits| edits.device_nodes.push(above.clone()))),
        ("a mount of the host is let through", with(&|edits| edits.mounts.push(mount("/")))),
        ("a mount of secrets is let through", with(&|edits| edits.mounts.push(mount("/etc/shadow")))),
        ("a network interface is let through", with(&|edits| edits.net_devices.push(net.clone()))),
        ("a group is let through", with(&|edits| edits.additional_gids.push(0))),
    ]
}
