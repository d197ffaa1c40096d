//! Time until kept devices are closed to other pods, on a real control plane.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{CARDS, HoldingCluster, RESOURCE, eventually};

#[test]
fn how_long_it_takes_until_a_slice_is_closed() {
    const ROUNDS: usize = 30;
    let Some(cluster) = HoldingCluster::start() else { return };
    let mut times: Vec<Duration> = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("e2e-time-{round}");
        let began = Instant::now();
        cluster.reserve(&name, 1, "nobody");
        eventually("the fence", || (cluster.held() == 1).then_some(()));
        times.push(began.elapsed());
        cluster.release(&name);
        eventually("no fence", || (cluster.held() == 0).then_some(()));
    }
    times.sort();
    let (middle, worst) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    println!("creation until the slice is closed to others, {ROUNDS} times: median {middle:?}, longest {worst:?}");
    cluster.stop();
}

/// A pod is made so long after the Reservation, and gets a card or is refused by the scheduler: the last moment at
/// which a pod still got a card is the figure.
/// got a card is the figure.
#[test]
fn how_long_after_its_creation_a_reservation_lets_others_in() {
    const STEP: Duration = Duration::from_millis(25);
    const STEPS: u32 = 60;
    const ROUNDS: u32 = 2;
    let Some(cluster) = HoldingCluster::start() else { return };
    cluster.template("any", &json!([])).unwrap();
    let (mut admitted, mut refused) = (Vec::new(), Vec::new());
    for round in 0..STEPS * ROUNDS {
        let (name, pod) = (format!("e2e-late-{round}"), format!("late-{round}"));
        let began = Instant::now();
        cluster.reserve(&name, CARDS, "nobody");
        thread::sleep((STEP * (round % STEPS)).saturating_sub(began.elapsed()));
        let made = began.elapsed();
        cluster.pod(&pod, "any");
        let is_refused = eventually("the scheduler's word", || {
            let refusals = cluster.node.events("Pod", &pod);
            let said = refusals.iter().any(|it| it.contains("cannot allocate all claims"));
            if cluster.is_bound(&pod) { Some(false) } else { said.then_some(true) }
        });
        if is_refused {
            refused.push(made)
        } else {
            admitted.push(made)
        }
        let path = cluster.node.of("/api/v1", &format!("pods/{pod}"));
        cluster.node.delete(&path, 0);
        eventually("the pod and its claim to be gone", || {
            let claims = cluster.node.get(&cluster.node.of(RESOURCE, "resourceclaims"))?;
            let are_gone = cluster.node.get(&path).is_none() && claims["items"].as_array()?.is_empty();
            are_gone.then_some(())
        });
        cluster.release(&name);
        eventually("no fence", || (cluster.held() == 0).then_some(()));
    }
    assert!(!refused.is_empty(), "nobody was refused");
    println!(
        "pods made up to {:?} after a Reservation: {} of {} got a card, the last one {:?} after it; the first refusal {:?}",
        STEP * STEPS,
        admitted.len(),
        admitted.len() + refused.len(),
        admitted.iter().max(),
        refused.iter().min(),
    );
    cluster.stop();
}
