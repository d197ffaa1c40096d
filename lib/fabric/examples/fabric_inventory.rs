//! Shows the fabric of a real service, attaches and detaches a device there, and frees its memory.
//!
//! ```text
//!   HOSTLER_REDFISH=http://127.0.0.1:5000 [HOSTLER_REDFISH_AGENTS=http://…,…] cargo run --example fabric_inventory
//!       [attach KEY UUID GCXLID [BYTES] | free GCXLID | state KEY | detach KEY | isolate GCXLID KEY...]
//! ```

#![allow(clippy::print_stdout, reason = "this is a program for people")]

use std::{env, error::Error};

use hostler_fabric::{
    AttachKey, AttachRequest, ExpectedConnection, FabricInventory, FabricProvider,
    redfish::{RedfishProvider, RedfishSettings},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let agents = env::var("HOSTLER_REDFISH_AGENTS").unwrap_or_default();
    let settings = RedfishSettings {
        address: env::var("HOSTLER_REDFISH")?,
        allow_plain_http: true,
        agents: agents.split(',').filter(|agent| !agent.is_empty()).map(str::to_owned).collect(),
        ..RedfishSettings::default()
    };
    let provider = RedfishProvider::new(&settings)?;
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => show(&provider.inventory().await?),
        ["attach", key, host, device, ref bytes @ ..] => {
            let memory = bytes.first().map(|bytes| bytes.parse()).transpose()?;
            let (key, host, device) = (AttachKey::new(key)?, host.parse()?, device.parse()?);
            let request = AttachRequest { key, host, device, memory };
            println!("{:#?}", provider.attach(&request).await);
        }
        ["state", key] => println!("{:#?}", provider.state(&AttachKey::new(key)?).await),
        ["free", device, key] => println!("{:#?}", provider.free(device.parse()?, &AttachKey::new(key)?).await),
        ["detach", key] => println!("{:#?}", provider.detach(&AttachKey::new(key)?).await),
        ["isolate", device, ref keys @ ..] => {
            let keys = keys.iter().map(|key| AttachKey::new(*key).map(ExpectedConnection::Key));
            println!("{:#?}", provider.isolate(device.parse()?, &keys.collect::<Result<Vec<_>, _>>()?).await);
        }
        _ => return Err("unknown words; see the first lines of the source".into()),
    }
    Ok(())
}

fn show(inventory: &FabricInventory) {
    for domain in &inventory.domains {
        println!("domain {} {:?}", domain.path, domain.uuid);
    }
    for host in &inventory.hosts {
        println!("host {} {:?} {:?} {:?}", host.path, host.uuid, host.initiators, host.unusable);
    }
    for device in &inventory.devices {
        let name = device.identity.map(|it| it.to_string()).unwrap_or_default();
        println!(
            "device {name} {} {:?} {:?} bytes, {:?}, endpoints {:?}, {} chunks, {:?} free, {:?}",
            device.path,
            device.kind,
            device.size_bytes,
            device.status.state,
            device.endpoints,
            device.chunks.len(),
            device.room.as_ref().map(|room| room.free_bytes),
            device.unusable
        );
    }
    for domain in &inventory.memory_domains {
        let (size, free) = (domain.size_bytes, domain.free_bytes);
        println!(
            "memory {} {size:?} bytes, {free:?} free, {} chunks, creation {}",
            domain.path,
            domain.chunks.len(),
            domain.allows_chunk_creation
        );
    }
    for it in &inventory.connections {
        println!("connection {} key {:?} host {} devices {:?}", it.path, it.key, it.host_text(), it.devices);
    }
    for problem in &inventory.problems {
        println!("problem {problem}");
    }
}
