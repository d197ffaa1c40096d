//! Jobs of several threads at once, with a disk that is played.

use std::{sync::mpsc, thread};

use super::*;

/// A disk that counts its flushes.
#[derive(Default)]
struct PlayedDisk {
    commits: GroupCommit<u32, &'static str>,
    flushes: Mutex<Vec<Vec<u32>>>,
}

impl PlayedDisk {
    /// Writes a number, with a flush that is the device's to answer.
    fn write(&self, number: u32, flush: impl FnOnce() -> Result<(), &'static str>) -> Result<(), &'static str> {
        self.commits.join(number, |group| {
            let done = flush();
            group.iter_mut().for_each(|member| member.result = done);
            self.flushes.lock().unwrap().push(group.iter().map(|member| member.job).collect());
        })
    }

    fn is_durable(&self, number: u32) -> bool {
        self.flushes.lock().unwrap().iter().flatten().any(|flushed| *flushed == number)
    }

    /// Writes with each number on a thread of its own, while a write before them holds the disk up; returns what came
    /// of each, the first one included.
    fn write_at_once(
        &self,
        numbers: std::ops::Range<u32>,
        first: Result<(), &'static str>,
        flush: Result<(), &'static str>,
    ) -> Vec<Result<(), &'static str>> {
        let (began_tx, began_rx) = mpsc::channel();
        let (go_tx, go_rx) = mpsc::channel::<()>();
        let count = numbers.len();
        thread::scope(|scope| {
            let leader = scope.spawn(move || {
                self.write(u32::MAX, || {
                    began_tx.send(()).unwrap();
                    let _ = go_rx.recv();
                    first
                })
            });
            began_rx.recv().unwrap();
            let write = |number| {
                let result = self.write(number, || flush);
                assert!(self.is_durable(number), "{number} was not flushed when its call returned");
                result
            };
            let others: Vec<_> = numbers.map(|number| scope.spawn(move || write(number))).collect();
            while self.commits.waiting() < count {
                thread::yield_now();
            }
            drop(go_tx);
            let all = std::iter::once(leader).chain(others);
            all.map(|thread| thread.join().unwrap()).collect()
        })
    }
}

#[test]
fn a_job_alone_is_done_at_once_and_once() {
    let disk = PlayedDisk::default();
    for number in 0..3 {
        disk.write(number, || Ok(())).unwrap();
    }
    assert_eq!(*disk.flushes.lock().unwrap(), [[0], [1], [2]]);
}

#[test]
fn jobs_that_come_while_one_is_done_share_the_next_flush() {
    let disk = PlayedDisk::default();
    let results = disk.write_at_once(0..16, Ok(()), Ok(()));
    assert_eq!(results, [Ok(()); 17]);
    let mut flushes = disk.flushes.lock().unwrap();
    flushes[1].sort_unstable();
    assert_eq!(*flushes, [vec![u32::MAX], (0..16).collect()]);
}

#[test]
fn a_flush_that_fails_fails_those_who_shared_it_and_no_others() {
    let disk = PlayedDisk::default();
    let results = disk.write_at_once(0..4, Ok(()), Err("EIO"));
    assert_eq!((results[0], &results[1..]), (Ok(()), &[Err("EIO"); 4][..]));
    let results = disk.write_at_once(4..8, Err("ENOSPC"), Ok(()));
    assert_eq!((results[0], &results[1..]), (Err("ENOSPC"), &[Ok(()); 4][..]));
    disk.write(8, || Ok(())).unwrap();
}

#[test]
fn many_threads_that_write_again_and_again_are_all_answered() {
    let disk = PlayedDisk::default();
    thread::scope(|scope| {
        for thread in 0..8 {
            let disk = &disk;
            scope.spawn(move || {
                for number in 0..200 {
                    let number = thread * 1000 + number;
                    disk.write(number, || Ok(())).unwrap();
                    assert!(disk.is_durable(number));
                }
            });
        }
    });
    let flushed: usize = disk.flushes.lock().unwrap().iter().map(Vec::len).sum();
    assert_eq!(flushed, 8 * 200);
    assert!(disk.commits.lock().results.is_empty());
}
