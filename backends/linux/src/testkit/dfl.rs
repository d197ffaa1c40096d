//! FPGA cards with a device feature list, of made-up machines.

use std::path::{Path, PathBuf};

use super::{FakePciFunction, MachineTree};

/// A card as the kernel's drivers show it. [`FakeDflCard::new`] gives one with a programmed port; change what matters, then
/// [`plug`](FakeDflCard::plug) it in. Its device nodes are empty files.
#[derive(Clone, Debug)]
pub struct FakeDflCard {
    /// The function with the management engine.
    pub function: FakePciFunction,
    /// What the kernel's numbers of the card's parts are made from; they shift between boots. Another one for each card.
    pub number: u32,
    /// What a bitstream must fit to.
    pub interface_id: String,
    /// The ports. The engine knows of all, also of those that were given away.
    pub ports: Vec<FakeDflPort>,
}

/// A port of a [`FakeDflCard`].
#[derive(Clone, Debug)]
pub struct FakeDflPort {
    /// The card's number for it.
    pub id: u32,
    /// What is programmed; `None`: the port does not tell.
    pub afu_id: Option<String>,
    /// The virtual function that has it, if the card's own does not.
    pub function: Option<FakePciFunction>,
    /// Whether this host has it.
    pub present: bool,
}

impl FakeDflPort {
    /// A port of the card's own function, with something programmed.
    pub fn new(id: u32) -> Self {
        Self { id, afu_id: Some(FakeDflCard::AFU_ID.to_owned()), function: None, present: true }
    }
}

impl FakeDflCard {
    /// What is programmed in a new card.
    pub const AFU_ID: &str = "d8424dc4a4a3c413f89e433683f9040b";
    /// The interface of a new card.
    pub const INTERFACE_ID: &str = "ce3139c959cf528ca27751c50829797a";

    /// An N6001 at `address`, with port 0.
    pub fn new(address: &str) -> Self {
        let function = FakePciFunction {
            subsystem: (0x8086, 0x1771),
            class: 0x12_0000,
            driver: Some("dfl-pci".to_owned()),
            numa_node: 0,
            ..FakePciFunction::new(address, 0x8086, 0xbcce)
        };
        let ports = vec![FakeDflPort::new(0)];
        Self { function, number: 0, interface_id: Self::INTERFACE_ID.to_owned(), ports }
    }

    /// One of many cards of a machine: the `n`th, below 256.
    pub fn nth(n: u32) -> Self {
        Self { number: n, ..Self::new(&format!("0001:{n:02x}:00.0")) }
    }

    /// The folder of the management engine.
    pub fn engine(&self) -> PathBuf {
        self.base().join(format!("dfl-fme.{}", self.number))
    }

    /// The folder with `state` and `status`.
    pub fn manager(&self) -> PathBuf {
        self.engine().join(format!("dfl-fme-mgr.{0}/fpga_manager/fpga{0}", self.number))
    }

    /// The folder with `compat_id` of the region in front of a port.
    pub fn region(&self, id: u32) -> PathBuf {
        let number = self.number_of(id) + 1;
        self.engine().join(format!("dfl-fme-region.{number}/fpga_region/region{number}"))
    }

    /// The folder of a port.
    pub fn port(&self, id: u32) -> PathBuf {
        let virtual_function = self.ports.iter().find(|port| port.id == id).and_then(|port| port.function.as_ref());
        let base =
            virtual_function.map_or_else(|| self.base(), |function| base_of(function, self.number_of(id) + VIRTUAL));
        base.join(format!("dfl-port.{}", self.number_of(id)))
    }

    /// The device node of a port, relative to the root.
    pub fn port_node(&self, id: u32) -> PathBuf {
        Path::new("dev").join(format!("dfl-port.{}", self.number_of(id)))
    }

    /// The device node of the management engine, relative to the root.
    pub fn engine_node(&self) -> PathBuf {
        Path::new("dev").join(format!("dfl-fme.{}", self.number))
    }

    /// The folder of the thermal sensors.
    pub fn thermal(&self) -> PathBuf {
        self.engine().join(format!("hwmon/hwmon{}", self.number))
    }

    /// Puts it into a tree; gives the folder of its function.
    pub fn plug(&self, tree: &MachineTree) -> PathBuf {
        let folder = self.function.plug(tree);
        tree.link(class_link(&self.base()), self.base()).link(self.base().join("device"), &folder);
        self.plug_engine(tree);
        for (index, port) in self.ports.iter().enumerate() {
            if let Some(function) = &port.function {
                let own = function.plug(tree);
                tree.link(own.join("physfn"), &folder).link(folder.join(format!("virtfn{index}")), own);
            }
            if port.present {
                self.plug_port(tree, port);
            }
        }
        folder
    }

    /// Takes it out of a tree.
    pub fn pull(&self, tree: &MachineTree) {
        let bases =
            self.ports.iter().filter(|port| port.present).filter_map(|port| Some(self.port(port.id).parent()?.into()));
        for base in bases.chain([self.base()]).collect::<Vec<PathBuf>>() {
            tree.remove(class_link(&base));
        }
        let regions = self.ports.iter().map(|port| self.region(port.id));
        for folder in regions.chain([self.manager(), self.thermal()]) {
            tree.remove(class_link(&folder));
        }
        for port in &self.ports {
            tree.remove(self.port_node(port.id));
        }
        tree.remove(self.engine_node());
        for function in self.ports.iter().filter_map(|port| port.function.as_ref()).chain([&self.function]) {
            function.pull(tree);
        }
    }

    fn plug_engine(&self, tree: &MachineTree) {
        let engine = self.engine();
        let ports = self.ports.len().to_string();
        tree.files(&engine, &[("bitstream_id", "0x5010202aecbd6e5"), ("ports_num", &ports), ("socket_id", "0")]);
        for file in ["catfatal", "fme", "nonfatal", "pcie0", "pcie1", "inject"] {
            tree.file(engine.join(format!("errors/{file}_errors")), "0x0");
        }
        tree.files(engine.join("errors"), &[("first_error", "0x0"), ("next_error", "0x0")]);
        tree.files(self.manager(), &[("name", "DFL FME FPGA Manager"), ("state", "unknown")]);
        tree.bytes(self.manager().join("status"), "").link(class_link(&self.manager()), self.manager());
        let sensors =
            [("name", "dfl_fme_thermal"), ("temp1_input", "51000"), ("temp1_crit", "90000"), ("temp1_crit_alarm", "0")];
        tree.files(self.thermal(), &sensors).link(class_link(&self.thermal()), self.thermal());
        for port in &self.ports {
            let region = self.region(port.id);
            tree.file(region.join("compat_id"), &self.interface_id).link(class_link(&region), &region);
        }
        tree.bytes(self.engine_node(), "");
    }

    fn plug_port(&self, tree: &MachineTree, port: &FakeDflPort) {
        let folder = self.port(port.id);
        let base = folder.parent().unwrap();
        if port.function.is_some() {
            tree.link(class_link(base), base);
        }
        tree.file(folder.join("id"), port.id.to_string());
        if let Some(id) = &port.afu_id {
            tree.file(folder.join("afu_id"), id);
        }
        tree.files(folder.join("errors"), &[("errors", "0x0"), ("first_error", "0x0")]);
        tree.bytes(self.port_node(port.id), "");
    }

    fn base(&self) -> PathBuf {
        base_of(&self.function, self.number * STEP)
    }

    fn number_of(&self, id: u32) -> u32 {
        self.number * STEP + id
    }
}

/// Between the kernel's numbers of two cards.
const STEP: u32 = 64;
/// Between the numbers of the regions of ports and of virtual functions.
const VIRTUAL: u32 = 32;

fn base_of(function: &FakePciFunction, number: u32) -> PathBuf {
    function.folder().join(format!("fpga_region/region{number}"))
}

/// Where the class of a folder links to it from.
fn class_link(folder: &Path) -> PathBuf {
    let class = folder.parent().unwrap().file_name().unwrap();
    Path::new("sys/class").join(class).join(folder.file_name().unwrap())
}
