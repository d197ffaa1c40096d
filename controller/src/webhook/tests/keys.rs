//! Which keys there are, whatever ends whoever writes them, and whenever.

use crate::webhook::keys::{KeyStep, ServingPair, WebhookKeys, next_step};

const DAY: u64 = 24 * 3600;

fn pair(made: u64, name: &str) -> ServingPair {
    let text = |what: &str| format!("{what} of {made}\n");
    ServingPair {
        made,
        names: vec![name.to_owned()],
        certificate: text("certificate"),
        key: text("key"),
        authority: text("authority"),
    }
}

/// What is read again after every write, and a controller that reads the Secret a day late at most.
#[derive(Default)]
struct KeyWorld {
    now: u64,
    keys: Option<WebhookKeys>,
    bundle: String,
    writes: Vec<&'static str>,
}

impl KeyWorld {
    /// One write, as the edge makes it; whether there was one.
    fn step(&mut self) -> bool {
        let names = ["w".to_owned()];
        let Some(step) = next_step(self.keys.as_ref(), &self.bundle, &names, self.now) else { return false };
        let made = pair(self.now, "w");
        match step {
            KeyStep::Make => self.write("make", WebhookKeys::new(made)),
            KeyStep::Prepare => self.write("prepare", self.keys.clone().unwrap().with_next(made)),
            KeyStep::Keep(keys) => self.write("keep", *keys),
            KeyStep::Bundle(bundle) => {
                self.bundle = bundle;
                self.writes.push("bundle");
            }
        }
        true
    }

    fn write(&mut self, what: &'static str, keys: WebhookKeys) {
        self.keys = Some(keys);
        self.writes.push(what);
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn shown(&self) -> ServingPair {
        self.keys.clone().unwrap().in_use
    }
}

#[test]
fn a_certificate_is_made_believed_and_then_left_alone() {
    let mut world = KeyWorld { now: 1000 * DAY, ..KeyWorld::default() };
    world.settle();
    assert_eq!(world.writes, ["make", "bundle"]);
    world.now += 59 * DAY;
    assert!(!world.step(), "no write at rest");
}

#[test]
fn whoever_reads_late_is_believed_all_the_time() {
    let mut world = KeyWorld { now: 1000 * DAY, ..KeyWorld::default() };
    world.settle();
    // Each hour for three years: one that was told an hour ago still shows what stood there then, and so does one a day late.
    let mut earlier = vec![world.shown(); 24];
    for hour in 0..3 * 365 * 24 {
        world.now += 3600;
        let last = world.bundle.clone();
        // Whoever writes may die after any write.
        for _ in 0..(hour % 3) {
            world.step();
        }
        earlier.rotate_left(1);
        earlier[23] = world.shown();
        for shown in &earlier {
            assert!(world.bundle.contains(&shown.authority), "hour {hour}: {:?}", world.writes);
            assert!(world.now - shown.made < 90 * DAY, "hour {hour}: it has expired");
        }
        // An API server that has not heard of the last write yet.
        assert!(last.contains(&world.shown().authority), "hour {hour}");
    }
    let made = world.writes.iter().filter(|it| **it == "prepare").count();
    assert!((17..=19).contains(&made), "every 60 days: {made}");
    world.settle();
    assert!(world.writes.len() < 6 * made, "few writes: {}", world.writes.len());
}

#[test]
fn what_somebody_else_wrote_is_mended() {
    let mut world = KeyWorld { now: 1000 * DAY, ..KeyWorld::default() };
    world.settle();
    let good = world.bundle.clone();
    world.bundle = "nonsense".to_owned();
    world.settle();
    assert_eq!(world.bundle, good);
    (world.keys, world.now) = (None, world.now + 1);
    world.settle();
    assert_ne!(world.bundle, good);
    assert_eq!(world.writes, ["make", "bundle", "bundle", "make", "bundle"]);
}

#[test]
fn what_is_over_or_for_other_names_is_replaced_at_once() {
    let old = WebhookKeys::new(pair(1000 * DAY, "w"));
    let step = |name: &str, now| next_step(Some(&old), &old.bundle(), &[name.to_owned()], now);
    assert_eq!(step("w", 1001 * DAY), None);
    assert_eq!(step("w", 1090 * DAY), Some(KeyStep::Make));
    assert_eq!(step("v", 1001 * DAY), Some(KeyStep::Make));
    assert_eq!(step("w", 1000 * DAY - 3600), None, "clocks differ a little");
}

#[test]
fn what_a_clock_made_that_was_ahead_is_replaced_since_nobody_takes_it_yet() {
    let mut world = KeyWorld { now: 1000 * DAY, ..KeyWorld::default() };
    world.settle();
    let ahead = world.shown().made;
    world.now -= 3601;
    world.settle();
    assert_eq!(world.writes, ["make", "bundle", "make", "bundle"]);
    assert_eq!((world.shown().made, world.shown().made < ahead), (world.now, true));
    // The same of the next one: what is in use stays, and another one is made.
    world.now += 60 * DAY;
    let in_use = world.shown();
    world.keys = world.keys.map(|keys| keys.with_next(pair(world.now + 10 * DAY, "w")));
    world.settle();
    assert_eq!(world.shown(), in_use);
    world.now += 3600;
    world.settle();
    assert_eq!(world.shown().made, world.now - 3600);
    assert!(!world.step(), "no write at rest");
}
