//! Drains on disk: durable, or not there at all; a list that cannot be understood drains everything.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use hostler_backend::Device;
use proptest::prelude::*;

use super::{store::DrainStore, *};
use crate::{inventory::Pool, tasks::Tasks};

fn fake() -> BackendName {
    BackendName::new("fake").unwrap()
}

fn device(name: &str) -> DeviceName {
    DeviceName::new(name).unwrap()
}

fn key(name: &str) -> (BackendName, DeviceName) {
    (fake(), device(name))
}

fn drain(reason: &str) -> Drain {
    Drain { since: UNIX_EPOCH + Duration::from_secs(1000), reason: Some(reason.to_owned()), evict: false }
}

fn drain_list(state: &Path) -> DrainList {
    DrainList::new(state.to_owned(), Tasks::new().0)
}

async fn loaded(state: &Path) -> DrainList {
    let mut list = drain_list(state);
    list.carry_out(DrainCommand::Load).await.unwrap();
    list
}

fn pools() -> BTreeMap<BackendName, Arc<Pool>> {
    let devices = ["a", "b"].map(|name| Device::new(device(name))).to_vec();
    [(fake(), Pool { name: "n/fake".to_owned(), devices, ..Pool::default() }.into())].into()
}

fn drained(list: &DrainList) -> Vec<String> {
    list.drains(&pools()).into_keys().map(|(_, device)| device.to_string()).collect()
}

#[tokio::test]
async fn a_drain_is_there_after_a_restart_and_keeps_its_beginning() {
    let state = tempfile::tempdir().unwrap();
    let mut list = loaded(state.path()).await;
    let first = list.carry_out(DrainCommand::Drain(fake(), device("gone"), drain("old"))).await.unwrap();
    assert_eq!(first, Some(drain("old")));
    let later = Drain { since: UNIX_EPOCH + Duration::from_secs(2000), evict: true, ..drain("new") };
    list.carry_out(DrainCommand::Drain(fake(), device("gone"), later)).await.unwrap();
    let expected = Drain { evict: true, ..drain("new") };
    let mut list = loaded(state.path()).await;
    assert_eq!(list.drains(&pools()), [(key("gone"), expected.clone())].into(), "a device that is absent stays listed");
    assert_eq!(list.carry_out(DrainCommand::Undrain(fake(), device("gone"))).await.unwrap(), Some(expected));
    assert_eq!(list.carry_out(DrainCommand::Undrain(fake(), device("gone"))).await.unwrap(), None);
    assert_eq!(drained(&loaded(state.path()).await), [""; 0]);
}

#[tokio::test]
async fn the_file_is_the_owners_alone_and_nothing_is_left_beside_it() {
    let state = tempfile::tempdir().unwrap();
    loaded(state.path()).await.carry_out(DrainCommand::Drain(fake(), device("a"), drain("x"))).await.unwrap();
    let names: Vec<_> = fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["drains.json"]);
    assert_eq!(fs::metadata(state.path().join("drains.json")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn what_cannot_be_written_has_not_happened() {
    let state = tempfile::tempdir().unwrap();
    let mut list = loaded(state.path()).await;
    list.carry_out(DrainCommand::Drain(fake(), device("a"), drain("x"))).await.unwrap();
    // A folder stands where the new list would be written: root may write everywhere else.
    fs::create_dir(state.path().join(".drains.json.tmp")).unwrap();
    let refused = list.carry_out(DrainCommand::Drain(fake(), device("b"), drain("y"))).await;
    assert!(matches!(refused, Err(DrainError::File(FileError { step: "write", .. }))), "{refused:?}");
    assert!(list.carry_out(DrainCommand::Undrain(fake(), device("a"))).await.is_err());
    assert_eq!(drained(&list), ["a"]);
    assert_eq!(drained(&loaded(state.path()).await), ["a"]);
}

#[tokio::test]
async fn a_damaged_list_drains_everything_until_it_is_forgotten() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("drains.json"), "{\"version\": 1").unwrap();
    for _restart in 0..2 {
        let list = loaded(state.path()).await;
        assert_eq!(drained(&list), ["a", "b"]);
        let lost = list.lost().unwrap();
        assert_eq!(lost.path, state.path().join("drains.json.damaged"));
        assert!(lost.explain().contains("drains.json.damaged") && lost.explain().contains("hostler device forget"));
    }
    let mut list = loaded(state.path()).await;
    let refused = list.carry_out(DrainCommand::Undrain(fake(), device("a"))).await;
    assert!(matches!(refused, Err(DrainError::Lost(_))), "{refused:?}");
    list.carry_out(DrainCommand::Drain(fake(), device("b"), drain("still"))).await.unwrap();
    assert_eq!(list.drains(&pools())[&key("b")], drain("still"));
    assert_eq!(drained(&loaded(state.path()).await), ["a", "b"]);
    list.carry_out(DrainCommand::Forget).await.unwrap();
    list.carry_out(DrainCommand::Forget).await.unwrap();
    assert_eq!(drained(&list), ["b"]);
    let list = loaded(state.path()).await;
    assert!(list.lost().is_none());
    assert_eq!(drained(&list), ["b"]);
    assert!(state.path().join("forgotten/drains.json").exists());
}

#[tokio::test]
async fn a_list_of_a_later_version_is_kept_and_drains_everything() {
    let state = tempfile::tempdir().unwrap();
    let text = "{\"version\": 2, \"checksum\": \"\", \"drains\": {}}";
    fs::write(state.path().join("drains.json"), text).unwrap();
    let list = loaded(state.path()).await;
    assert!(list.lost().unwrap().reason.contains("format version 2"));
    assert_eq!(drained(&list), ["a", "b"]);
    assert_eq!(fs::read_to_string(state.path().join("drains.json.damaged")).unwrap(), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A bit that has flipped gives the same list or a lost one, never another list.
    #[test]
    fn one_flipped_bit_never_gives_another_list(at in 0_usize..300, bit in 0_u8..8) {
        let state = tempfile::tempdir().unwrap();
        let store = DrainStore::new(state.path().to_owned());
        let drains: Drains = [(key("a"), drain("hot")), (key("b"), drain("loud"))].into();
        store.write(&drains).unwrap();
        let path = state.path().join("drains.json");
        let mut bytes = fs::read(&path).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let (found, lost) = store.load();
        prop_assert!(lost.is_some() || found == drains, "{found:?}");
        prop_assert!(lost.is_none() || state.path().join("drains.json.damaged").exists());
    }
}
