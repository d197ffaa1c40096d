//! Facts about a claim, one sentence for each.

use hostler_api::{Access, few};

use super::{ClaimFacts, ClaimObject, ClaimOrigin, DeviceFact, FailureFact, count, is_other};

/// Returns every fact as a sentence.
pub(super) fn sentences(facts: &ClaimFacts) -> Vec<String> {
    let mut all = vec![match &facts.record {
        Some(record) => format!("on record as {} with uid {}", record.state, record.uid),
        None => "not on record here: nothing of it is prepared".to_owned(),
    }];
    all.extend(object_sentences(facts));
    all.extend(facts.devices.iter().map(device_sentence));
    if let Some(failure) = &facts.failure {
        let FailureFact { uid, operation, error, seconds_ago } = failure;
        all.push(format!("last failure, {seconds_ago} s ago, to {operation} uid {uid}: {error}"));
    }
    all
}

fn object_sentences(facts: &ClaimFacts) -> Vec<String> {
    let place = facts.origin.place();
    let claim = match &facts.object {
        ClaimObject::Found(claim) => claim,
        ClaimObject::Missing => return vec![format!("not in {place}")],
        ClaimObject::Unknown(why) => return vec![format!("{place} could not be asked: {why}")],
    };
    let mut all = vec![format!("in {place} with uid {}", claim.metadata.uid.as_deref().unwrap_or("(none)"))];
    if facts.record.as_ref().is_some_and(|record| is_other(facts, record)) {
        all.push("that is another claim than the one on record".to_owned());
    }
    if let Some(since) = &claim.metadata.deletion_timestamp {
        all.push(format!("being deleted since {since}"));
    }
    all.push(match &claim.status.allocation {
        None => "not allocated".to_owned(),
        Some(allocation) => {
            let results = &allocation.devices.results;
            let ours = results.iter().filter(|result| result.driver == facts.driver).count();
            format!("allocated: of {} {ours} from driver {}", count(results.len()), facts.driver)
        }
    });
    if facts.origin == ClaimOrigin::Cluster {
        let users = few(claim.status.reserved_for.iter().map(|user| format!("{}/{}", user.resource, user.name)));
        all.push(if users.is_empty() { "reserved for nobody".to_owned() } else { format!("reserved for {users}") });
    }
    all
}

fn device_sentence(device: &DeviceFact) -> String {
    let mut text = format!("device {}: ", device.name());
    text.push_str(&match &device.health {
        None => match &device.unknown {
            Some(reason) => format!("nothing is known of it: {reason}"),
            None => "not on this host".to_owned(),
        },
        Some(health) => match health.reason() {
            Some(reason) => format!("{} ({reason})", health.as_str()),
            None => health.as_str().to_owned(),
        },
    });
    if let Some(stale) = &device.stale {
        text.push_str(&format!("; as of the last scan that worked: {stale}"));
    }
    if let Some(reason) = &device.drained {
        text.push_str(&format!("; drained: {reason}"));
    }
    if device.access == Access::Admin {
        text.push_str("; administrative access");
    }
    if !device.bound.is_empty() {
        text.push_str(&format!("; {}", device.bound));
    }
    if !device.others.is_empty() {
        text.push_str(&format!("; also held by {}", few(&device.others)));
    }
    text
}
