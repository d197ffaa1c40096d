//! Containers without claims for CPUs, and the CPUs that are left for them.

use hostler_testing::nri::NriVersion;

use super::rig::{ALL, Rig, SharedPool, set, without};

#[test]
fn without_a_pool_nobody_else_is_touched() {
    let rig = Rig::new(SharedPool::Off);
    let free = rig.run_container("pod", "free", &[]);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    rig.run_container("pod", "bound", &[&claim]);
    rig.release(&claim);
    rig.runtime.update_container(&free, &Default::default()).unwrap();
    assert_eq!(rig.runtime.cpus(&free), "");
    assert_eq!(rig.runtime.unasked_updates(), 0);
}

#[test]
fn the_pool_shrinks_when_cpus_are_prepared_and_grows_when_they_are_released() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let free = rig.run_container("pod", "free", &[]);
    assert_eq!(rig.runtime.cpus(&free), ALL);
    let first = rig.claim("a", &["cpu/numa0,cpus=2"]);
    // Already before a container has them: promised CPUs are for no other container.
    rig.runtime.wait_for_cpus(&free, &without(&[&first]));
    let second = rig.claim("b", &["cpu/numa1,cpus=4"]);
    rig.runtime.wait_for_cpus(&free, &without(&[&first, &second]));
    let new = rig.run_container("pod", "new", &[]);
    assert_eq!(rig.runtime.cpus(&new), without(&[&first, &second]));
    rig.release(&first);
    for id in [&free, &new] {
        rig.runtime.wait_for_cpus(id, &without(&[&second]));
    }
    rig.release(&second);
    for id in [&free, &new] {
        rig.runtime.wait_for_cpus(id, ALL);
    }
}

#[test]
fn a_container_with_memory_alone_runs_in_the_pool() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let (memory, cpus) = (rig.claim("a", &["memory/node1,memory=64Mi"]), rig.claim("b", &["cpu/numa0,cpus=2"]));
    let id = rig.run_container("pod", "main", &[&memory]);
    assert_eq!((rig.runtime.cpus(&id), rig.runtime.mems(&id)), (without(&[&cpus]), "1".to_owned()));
    rig.release(&cpus);
    rig.runtime.wait_for_cpus(&id, ALL);
    assert_eq!(rig.runtime.mems(&id), "1");
}

#[test]
fn an_empty_pool_is_refused_and_never_widened() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let all = [rig.claim("a", &["cpu/numa0,cpus=8"]), rig.claim("b", &["cpu/numa1,cpus=8"])];
    let bound = rig.run_container("pod", "bound", &[&all[0]]);
    let refusal = rig.runtime.create(&rig.container("pod", "free", &[])).unwrap_err();
    assert!(refusal.contains("the shared pool is empty"), "{refusal}");
    rig.assert_bound(&bound, &all[0]);
    rig.release(&all[1]);
    let free = rig.run_container("pod", "free", &[]);
    assert_eq!(rig.runtime.cpus(&free), all[1].cpus.to_string());
}

#[test]
fn containers_that_run_while_the_pool_becomes_empty_keep_what_they_have() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let free = rig.run_container("pod", "free", &[]);
    let first = rig.claim("a", &["cpu/numa0,cpus=8"]);
    rig.runtime.wait_for_cpus(&free, &without(&[&first]));
    let second = rig.claim("b", &["cpu/numa1,cpus=8"]);
    let bound = rig.run_container("pod", "bound", &[&second]);
    rig.assert_bound(&bound, &second);
    assert_eq!(rig.runtime.cpus(&free), without(&[&first]), "there is nothing that it could have instead");
    rig.release(&first);
    rig.runtime.wait_for_cpus(&free, &without(&[&second]));
}

#[test]
fn a_container_whose_update_fails_does_not_keep_others_from_theirs() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let ids: Vec<String> = (0..5).map(|n| rig.run_container("pod", &format!("c{n}"), &[])).collect();
    rig.runtime.refuse_updates_of(&ids[2]);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    for id in [0, 1, 3, 4].map(|n| &ids[n]) {
        rig.runtime.wait_for_cpus(id, &without(&[&claim]));
    }
    assert_eq!(rig.runtime.cpus(&ids[2]), ALL);
    let bound = rig.run_container("pod", "bound", &[&claim]);
    rig.assert_bound(&bound, &claim);
}

#[test]
fn an_update_from_the_pool_reaches_no_container_that_has_ended() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let (gone, free) = (rig.run_container("pod", "gone", &[]), rig.run_container("pod", "free", &[]));
    rig.runtime.stop_container(&gone).unwrap();
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    rig.runtime.wait_for_cpus(&free, &without(&[&claim]));
    assert_eq!(rig.runtime.cpus_so_far(&gone), [ALL]);
}

#[test]
fn a_runtime_that_could_lock_up_does_not_and_the_pool_is_kept_all_the_same() {
    let rig = Rig::of_version(SharedPool::ExcludeExclusive, NriVersion::V0_12_0);
    let free = rig.run_container("pod", "free", &[]);
    // Claims come and go while containers do: an update by ourselves, at the wrong moment, would be the end of it.
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..15 {
                let claim = rig.claim(&format!("c{round}"), &["cpu/numa0,cpus=2"]);
                rig.release(&claim);
            }
        });
        for round in 0..40 {
            let id = rig.run_container("pod", &format!("other{round}"), &[]);
            rig.runtime.remove_container(&id).unwrap();
        }
    });
    assert!(!rig.runtime.is_locked_up());
    let claim = rig.claim("last", &["cpu/numa0,cpus=2"]);
    // The next event of any kind tells the runtime, which must not be sent unsolicited messages.
    let bound = rig.run_container("pod", "bound", &[&claim]);
    rig.assert_bound(&bound, &claim);
    rig.runtime.wait_for_cpus(&free, &without(&[&claim]));
    rig.release(&claim);
    rig.runtime.wait_for_cpus(&free, ALL);
    assert_eq!(rig.runtime.unasked_updates(), 0);
}

#[test]
fn the_oldest_runtimes_are_connected_with_once() {
    let rig = Rig::of_version(SharedPool::ExcludeExclusive, NriVersion::V0_4);
    let free = rig.run_container("pod", "free", &[]);
    for round in 0..5 {
        let claim = rig.claim(&format!("c{round}"), &["cpu/numa0,cpus=2"]);
        // The runtime learns the pool with the answer to any request.
        let id = rig.run_container("pod", &format!("r{round}"), &[&claim]);
        assert_eq!(rig.runtime.cpus(&free), without(&[&claim]));
        rig.release(&claim);
        rig.runtime.stop_container(&id).unwrap();
        assert_eq!(rig.runtime.cpus(&free), ALL);
    }
    assert_eq!((rig.runtime.connections(), rig.runtime.unasked_updates()), (1, 0));
    assert!(!rig.runtime.is_locked_up());
}

#[test]
fn reserved_cpus_are_in_no_pool() {
    let mut rig = Rig::quiet(SharedPool::ExcludeExclusive);
    let file = rig.path("hostler.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, config.replace("full_cores = false", "full_cores = false\nreserved = \"0,8\"")).unwrap();
    rig.runtime.start();
    rig.start();
    rig.runtime.wait_for_plugin();
    let free = rig.run_container("pod", "free", &[]);
    assert_eq!(rig.runtime.cpus(&free), set("1-7,9-15").to_string());
}
