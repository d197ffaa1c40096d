//! Lists of claims, and the devices that they could use.

use std::{collections::HashMap, rc::Rc};

use hostler_api::resource::{DeviceRequest, ResourceClaim, SliceDevice};

use super::super::{
    boxes::PlanBoxes,
    engine::{Engine, Way, wants_places},
    facts::ClusterFacts,
    projection::Projection,
};

/// Number of reasons why devices are of no use that are told apart; the last one stands for all others.
const MOST_CLASSES: usize = 63;

/// The claims of a pod.
#[derive(Debug)]
pub(super) struct ClaimList {
    pub(super) claims: Rc<[ResourceClaim]>,
    /// Greatest number of devices that they take.
    pub(super) most: u32,
    /// True if it matters for them which devices of a kind are taken.
    pub(super) has_places: bool,
    /// The ways to satisfy the requests; `None` if one of them is invalid.
    ways: Option<Vec<Way>>,
    /// By kind of device.
    interests: Vec<Option<Interest>>,
    /// Numbers of reasons, by the selector of each way that refuses a device.
    classes: HashMap<Vec<usize>, usize>,
}

/// Inputs of judging kinds of devices.
pub(super) struct Judging<'a> {
    pub(super) projection: &'a Projection,
    pub(super) facts: &'a ClusterFacts,
    pub(super) boxes: &'a PlanBoxes,
}

/// The use of a kind of device for a list of claims.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Interest {
    Some,
    /// No way selects the kind, for the reason with this number.
    None(usize),
}

impl ClaimList {
    pub(super) fn new(claims: Rc<[ResourceClaim]>, engine: &Engine, facts: &ClusterFacts) -> Self {
        let requests = || claims.iter().flat_map(|claim| &claim.spec.devices.requests);
        Self {
            most: requests().map(most_of).fold(0, u32::saturating_add),
            has_places: claims.iter().any(|claim| wants_places(&claim.spec)),
            ways: requests()
                .map(|request| engine.ways(request, facts))
                .collect::<Option<Vec<_>>>()
                .map(|it| it.concat()),
            interests: Vec::new(),
            classes: HashMap::new(),
            claims,
        }
    }

    /// Judges the use of a kind of device.
    pub(super) fn interest(&mut self, kind: u32, judging: &Judging<'_>) -> Interest {
        let at = kind as usize;
        if let Some(Some(interest)) = self.interests.get(at) {
            return *interest;
        }
        // Selectors can be expensive, and a question that is cut short does not need this answer.
        if judging.boxes.is_empty() {
            return Interest::Some;
        }
        if self.interests.len() <= at {
            self.interests.resize(at + 1, None);
        }
        let (driver, device) = judging.projection.device(kind, &judging.facts.store);
        let interest = self.judge(judging.facts.text(driver), &device);
        self.interests[at] = Some(interest);
        interest
    }

    /// Judges a device. One on which a selector fails is of use: the allocator must visit it, and fail.
    fn judge(&mut self, driver: &str, device: &SliceDevice) -> Interest {
        let Some(ways) = &self.ways else { return Interest::Some };
        let refusals: Option<Vec<usize>> = ways.iter().map(|way| way.refuses(driver, device)).collect();
        let Some(refusals) = refusals else { return Interest::Some };
        let next = self.classes.len().min(MOST_CLASSES);
        Interest::None(*self.classes.entry(refusals).or_insert(next))
    }
}

fn most_of(request: &DeviceRequest) -> u32 {
    let counts = request.first_available.iter().map(|it| it.count).chain(request.exactly.iter().map(|it| it.count));
    counts.map(|count| u32::try_from(count.unwrap_or(1)).unwrap_or(u32::MAX)).max().unwrap_or(0)
}
