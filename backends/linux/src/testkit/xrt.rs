//! AMD cards with the XRT drivers, of made-up machines.

use std::path::{Path, PathBuf};

use super::{FakePciFunction, MachineTree};

/// A card as the XRT drivers show it: the function for users, and the one for management. Change what matters, then
/// [`plug`](FakeXrtCard::plug) it in. Its device nodes are empty files.
#[derive(Clone, Debug)]
pub struct FakeXrtCard {
    /// What programs use: function 1 of the slot.
    pub user: FakePciFunction,
    /// What looks after the card: function 0; absent where another host has it.
    pub management: Option<FakePciFunction>,
    /// The number of the render node.
    pub render: u32,
    /// The design that is loaded.
    pub xclbin_id: Option<String>,
}

impl FakeXrtCard {
    /// A U250 in a slot (`0000:b1:00`), with no design loaded.
    pub fn new(slot: &str) -> Self {
        let function = |number: u32, device, driver: &str| FakePciFunction {
            class: 0x12_0000,
            driver: Some(driver.to_owned()),
            numa_node: 0,
            ..FakePciFunction::new(&format!("{slot}.{number}"), 0x10ee, device)
        };
        let (user, management) = (function(1, 0x5005, "xocl"), function(0, 0x5004, "xclmgmt"));
        Self { user, management: Some(management), render: 128, xclbin_id: None }
    }

    /// The folder of a part of the function for users (`rom`), whose name holds the function's number.
    pub fn user_part(&self, name: &str) -> PathBuf {
        self.user.folder().join(format!("{name}.u.45313"))
    }

    /// The folder of a part of the function for management (`firewall`).
    pub fn management_part(&self, name: &str) -> PathBuf {
        self.management.as_ref().unwrap().folder().join(format!("{name}.m.45312"))
    }

    /// Puts it into a tree.
    pub fn plug(&self, tree: &MachineTree) {
        let user = self.user.plug(tree);
        let none = "00000000-0000-0000-0000-000000000000";
        let attributes = [
            ("user_pf", ""),
            ("ready", "1"),
            ("dev_offline", "0"),
            ("mig_calibration", "0x0"),
            ("mailbox_connect_state", "0x1"),
            ("logic_uuids", "f465b0a3ae8c64f619bc150384ace69b"),
            ("interface_uuids", "862c7020a250293e32036f19956669e5"),
            ("xclbinuuid", self.xclbin_id.as_deref().unwrap_or(none)),
            ("link_width", "16"),
            ("link_speed", "3"),
        ];
        tree.files(&user, &attributes);
        let rom = [("VBNV", "xilinx_u250_gen3x16_xdma_shell_4_1"), ("ddr_bank_count_max", "4")];
        tree.files(self.user_part("rom"), &rom).file(self.user_part("xmc").join("serial_num"), "21320621V01M");
        tree.folder(user.join(format!("drm/renderD{}", self.render))).folder(user.join("drm/card1"));
        tree.bytes(format!("dev/dri/renderD{}", self.render), "");
        if let Some(management) = &self.management {
            let folder = management.plug(tree);
            tree.files(&folder, &[("mgmt_pf", ""), ("ready", "1"), ("instance", "45312")]);
            tree.files(self.management_part("firewall"), &[("level", "0"), ("status", "0")]);
            tree.bytes(Path::new("dev/xclmgmt45312"), "");
        }
    }
}
