//! Resources that a pod sets aside on a node: the sum of its containers, or the most that any step of its start
//! needs, with the requests of the whole pod and the runtime's overhead; and the pod's ports on the node.

use std::collections::BTreeMap;

use super::{Container, ContainerPort, PodSpec, ResourceList, ResourceRequirements};
use crate::ExactQuantity;

impl PodSpec {
    /// Amounts that the pod sets aside, by name of the resource.
    pub fn requests(&self) -> ResourceList {
        let mut requests = self.of_containers();
        if let Some(pod) = &self.resources {
            requests.extend(of_pod(pod, &requests));
        }
        add(&mut requests, &self.overhead);
        requests
    }

    /// Ports of the node that the pod takes, each once.
    pub fn host_ports(&self) -> Vec<ContainerPort> {
        let staying = self.init_containers.iter().filter(|container| container.stays());
        let ports = self.containers.iter().chain(staying).flat_map(|container| &container.ports);
        let mut ports: Vec<ContainerPort> =
            ports.map(|port| port.on_node(self.host_network)).filter(|port| port.host_port != 0).collect();
        ports.sort();
        ports.dedup();
        ports
    }

    /// Returns the sum of containers, which run together, or the most of any step of the start: containers before
    /// them run one after the other, each beside those that already stay.
    fn of_containers(&self) -> ResourceList {
        let mut together = ResourceList::new();
        for container in &self.containers {
            add(&mut together, &container.requests());
        }
        let (mut staying, mut starting) = (ResourceList::new(), ResourceList::new());
        for container in &self.init_containers {
            let mut step = container.requests();
            if container.stays() {
                add(&mut together, &step);
                add(&mut staying, &step);
                step = staying.clone();
            } else {
                add(&mut step, &staying);
            }
            raise(&mut starting, &step);
        }
        raise(&mut together, &starting);
        together
    }
}

impl Container {
    /// True if the container starts before the others and then stays.
    fn stays(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    /// Requests, and limits without a request, which count as one.
    fn requests(&self) -> ResourceList {
        let mut requests = self.resources.limits.clone();
        requests.extend(self.resources.requests.iter().map(|(name, amount)| (name.clone(), *amount)));
        requests
    }
}

impl ContainerPort {
    /// Returns the port as the scheduler compares it: a pod on the node's network has its ports there, and omitted
    /// parts get their defaults.
    fn on_node(&self, is_on_host_network: bool) -> Self {
        let or = |text: &str, meant: &str| if text.is_empty() { meant.to_owned() } else { text.to_owned() };
        Self {
            container_port: 0,
            host_port: if is_on_host_network { self.container_port } else { self.host_port },
            host_ip: or(&self.host_ip, "0.0.0.0"),
            protocol: or(&self.protocol, "TCP"),
        }
    }

    /// True if two ports of a node, as [`PodSpec::host_ports`] returns them, cannot be taken by two pods.
    pub fn collides(&self, other: &Self) -> bool {
        let same_address = self.host_ip == other.host_ip || [self, other].iter().any(|port| port.host_ip == "0.0.0.0");
        self.host_port == other.host_port && self.protocol == other.protocol && same_address
    }
}

/// Requests of the pod as a whole, which replace those of its containers; a limit counts only where no request is made.
fn of_pod(pod: &ResourceRequirements, containers: &ResourceList) -> ResourceList {
    let whole = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let limits = pod.limits.iter().filter(|(name, _)| !containers.contains_key(*name));
    let mut requests: ResourceList = BTreeMap::new();
    for (name, amount) in limits.chain(&pod.requests).filter(|(name, _)| whole(name)) {
        requests.insert(name.clone(), *amount);
    }
    requests
}

fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(ExactQuantity::ZERO);
        *entry = entry.plus(*amount);
    }
}

fn raise(most: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> PodSpec {
        serde_json::from_str(json).unwrap()
    }

    fn cpus(json: &str) -> i64 {
        spec(json).requests()["cpu"].rounded()
    }

    fn container(cpu: u32) -> String {
        format!(r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
    }

    fn staying(cpu: u32) -> String {
        format!(r#"{{"name":"s","restartPolicy":"Always","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
    }

    #[test]
    fn containers_add_up_and_a_hungry_start_counts_alone() {
        let (two, nine) = (container(2), container(9));
        assert_eq!(cpus(&format!(r#"{{"containers":[{two},{two}]}}"#)), 4);
        assert_eq!(cpus(&format!(r#"{{"containers":[{two},{two}],"initContainers":[{nine}]}}"#)), 9);
    }

    #[test]
    fn a_sidecar_counts_beside_the_containers_and_beside_later_starts() {
        let (two, three, nine) = (container(2), staying(3), container(9));
        assert_eq!(cpus(&format!(r#"{{"containers":[{two}],"initContainers":[{three}]}}"#)), 5);
        assert_eq!(cpus(&format!(r#"{{"containers":[{two}],"initContainers":[{three},{nine}]}}"#)), 12);
        assert_eq!(cpus(&format!(r#"{{"containers":[{two}],"initContainers":[{nine},{three}]}}"#)), 9);
    }

    #[test]
    fn a_limit_without_a_request_is_one() {
        let json =
            r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"3","memory":"1Gi"},"requests":{"cpu":1}}}]}"#;
        assert_eq!(cpus(json), 1);
        assert_eq!(spec(json).requests()["memory"].rounded(), 1 << 30);
    }

    #[test]
    fn what_the_pod_asks_for_comes_before_its_containers_and_overhead_on_top() {
        let two = container(2);
        let pod =
            |resources: &str| format!(r#"{{"containers":[{two}],"resources":{resources},"overhead":{{"cpu":"1"}}}}"#);
        assert_eq!(cpus(&pod(r#"{"requests":{"cpu":"5"}}"#)), 6);
        assert_eq!(cpus(&pod(r#"{"limits":{"cpu":"5"}}"#)), 3, "its containers ask, so the limit is none");
        assert_eq!(spec(&pod(r#"{"limits":{"memory":"7"}}"#)).requests()["memory"].rounded(), 7);
    }

    #[test]
    fn ports_collide_by_number_protocol_and_address() {
        let ports = |json: &str| spec(&format!(r#"{{"containers":[{{"name":"c","ports":[{json}]}}]}}"#)).host_ports();
        let http = &ports(r#"{"containerPort":80,"hostPort":8080}"#)[0];
        assert!(ports(r#"{"containerPort":80}"#).is_empty());
        assert!(http.collides(&ports(r#"{"containerPort":1,"hostPort":8080,"hostIP":"10.0.0.1"}"#)[0]));
        assert!(!http.collides(&ports(r#"{"containerPort":1,"hostPort":8080,"protocol":"UDP"}"#)[0]));
        assert!(!http.collides(&ports(r#"{"containerPort":1,"hostPort":8081}"#)[0]));
    }

    #[test]
    fn a_pod_on_the_nodes_network_takes_its_ports_there() {
        let pod = spec(r#"{"hostNetwork":true,"containers":[{"name":"c","ports":[{"containerPort":80}]}]}"#);
        assert_eq!(pod.host_ports()[0].host_port, 80);
    }
}
