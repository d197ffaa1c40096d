//! Parts of an inventory as they are kept: equal texts are one, since endpoints, chunks and devices name each other and all
//! of them name their fabric; and lists have no more room than members. A list that grows has room for four, and most have
//! one.

use super::{InventoryParts, ObjectStatus};
use crate::path::InternedTexts;

impl InventoryParts {
    /// Makes equal texts one, and lists as long as they are.
    pub(crate) fn compact(&mut self) {
        let mut texts = InternedTexts::default();
        for domain in &mut self.domains {
            texts.share_path(&mut domain.path);
            domain.status.share_texts(&mut texts);
        }
        for host in &mut self.hosts {
            texts.share_path(&mut host.path);
            host.status.share_texts(&mut texts);
        }
        for device in &mut self.devices {
            let links = device.endpoints.iter_mut().chain(&mut device.chunks).chain(&mut device.enclosure);
            let links = links.chain(&mut device.memory_domains);
            links.chain([&mut device.path]).for_each(|path| texts.share_path(path));
            device.status.share_texts(&mut texts);
            let lists = [&mut device.endpoints, &mut device.chunks, &mut device.memory_domains];
            lists.into_iter().for_each(Vec::shrink_to_fit);
        }
        for endpoint in &mut self.endpoints {
            let links = endpoint.entities.iter_mut().chain(&mut endpoint.missing).chain(&mut endpoint.ports);
            links.chain([&mut endpoint.path, &mut endpoint.domain]).for_each(|path| texts.share_path(path));
            let lists = [&mut endpoint.entities, &mut endpoint.missing, &mut endpoint.ports];
            lists.into_iter().for_each(Vec::shrink_to_fit);
            endpoint.identities.shrink_to_fit();
        }
        for domain in &mut self.memory_domains {
            domain.devices.iter_mut().chain([&mut domain.path]).for_each(|path| texts.share_path(path));
            for chunk in &mut domain.chunks {
                chunk.devices.iter_mut().chain([&mut chunk.path]).for_each(|path| texts.share_path(path));
                chunk.devices.shrink_to_fit();
            }
            domain.chunks.shrink_to_fit();
            domain.devices.shrink_to_fit();
        }
        self.devices.shrink_to_fit();
        self.endpoints.shrink_to_fit();
        self.memory_domains.shrink_to_fit();
    }
}

impl ObjectStatus {
    fn share_texts(&mut self, texts: &mut InternedTexts) {
        self.health.iter_mut().chain(&mut self.state).for_each(|text| texts.share(text));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{FabricDevice, FabricEndpoint, InventoryParts, ObjectPath, ObjectStatus};

    #[test]
    fn objects_that_name_each_other_share_the_text() {
        let status = || ObjectStatus { state: Some("Enabled".into()), ..ObjectStatus::default() };
        let device = |at: &str| FabricDevice { path: ObjectPath::new(at), status: status(), ..FabricDevice::default() };
        let endpoint = FabricEndpoint { entities: vec![ObjectPath::new("/d/1")], ..FabricEndpoint::default() };
        let mut parts = InventoryParts {
            devices: vec![device("/d/0"), device("/d/1")],
            endpoints: vec![endpoint],
            ..InventoryParts::default()
        };
        let before = format!("{parts:?}");
        parts.compact();
        assert_eq!(format!("{parts:?}"), before);
        let address = |path: &ObjectPath| path.as_str().as_ptr();
        assert_eq!(address(&parts.endpoints[0].entities[0]), address(&parts.devices[1].path));
        let [one, other] = [0, 1].map(|at: usize| parts.devices[at].status.state.clone().unwrap());
        assert!(Arc::ptr_eq(&one, &other));
    }
}
