//! `[provisioning]`: settings of ProvisioningRequests.

use hostler_process::config::ConfigMistake;
use serde::{Deserialize, Serialize};

use super::is_driver_name;
use crate::requests::{OFFICIAL_ATOMIC_SCALE_UP, OFFICIAL_CHECK_CAPACITY, ProvisionClasses};

/// `[provisioning]`: settings of ProvisioningRequests.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ProvisioningConfig {
    /// The name of this controller in the requests' parameter `processorInstance`.
    pub(crate) instance: String,
    /// More names of the class that checks capacity.
    pub(crate) check_capacity_aliases: Vec<String>,
    /// More names of the class that gives all or nothing.
    pub(crate) atomic_scale_up_aliases: Vec<String>,
    /// Answers Cluster Autoscaler's class that gives all or nothing: for clusters where no other program does.
    pub(crate) answers_best_effort_atomic: bool,
    /// The most requests that are planned together.
    pub(crate) batch: u32,
    /// Seconds after which planning begins no further request of them.
    pub(crate) time_box_seconds: u32,
    /// The largest `bookingSeconds` of a request.
    pub(crate) longest_booking_seconds: u32,
    /// Seconds for which requests that are over are kept for people; 0: for ever.
    pub(crate) keep_seconds: u32,
}

impl Default for ProvisioningConfig {
    fn default() -> Self {
        Self {
            instance: "hostler".to_owned(),
            check_capacity_aliases: Vec::new(),
            atomic_scale_up_aliases: Vec::new(),
            answers_best_effort_atomic: false,
            // The same as Cluster Autoscaler's.
            batch: 10,
            time_box_seconds: 10,
            // Six times the usual booking: devices that are booked keep other requests waiting.
            longest_booking_seconds: 3600,
            // A week, as Cluster Autoscaler does.
            keep_seconds: 7 * 24 * 3600,
        }
    }
}

impl ProvisioningConfig {
    /// Returns the names of the classes that this controller answers.
    pub(crate) fn classes(&self) -> ProvisionClasses {
        ProvisionClasses {
            instance: self.instance.clone(),
            check_capacity: self.check_capacity_aliases.clone(),
            atomic_scale_up: self.atomic_scale_up_aliases.clone(),
            best_effort_atomic: self.answers_best_effort_atomic,
        }
    }

    /// Returns mistakes of values that their types do not exclude.
    pub(super) fn mistakes(&self) -> Vec<ConfigMistake> {
        let lists = [
            ("provisioning.check_capacity_aliases", &self.check_capacity_aliases),
            ("provisioning.atomic_scale_up_aliases", &self.atomic_scale_up_aliases),
        ];
        let aliases = lists.into_iter().flat_map(|(key, names)| names.iter().filter_map(move |name| alias(key, name)));
        let twice =
            self.check_capacity_aliases.iter().find(|name| self.atomic_scale_up_aliases.contains(name)).map(|name| {
                let what = format!("has {name:?}, as has provisioning.check_capacity_aliases");
                ConfigMistake::new("provisioning.atomic_scale_up_aliases", what, "name it in one of them")
            });
        let none =
            (self.batch == 0).then(|| ConfigMistake::new("provisioning.batch", "is 0".to_owned(), "write at least 1"));
        let longest = "provisioning.longest_booking_seconds";
        let no_booking = (self.longest_booking_seconds == 0)
            .then(|| ConfigMistake::new(longest, "is 0".to_owned(), "write at least 1"));
        aliases.chain(twice).chain(none).chain(no_booking).collect()
    }
}

fn alias(key: &'static str, name: &str) -> Option<ConfigMistake> {
    if [OFFICIAL_CHECK_CAPACITY, OFFICIAL_ATOMIC_SCALE_UP].contains(&name) {
        let what = format!("has {name:?}, which Cluster Autoscaler answers");
        let fix = match name {
            OFFICIAL_ATOMIC_SCALE_UP => "leave it out, and write provisioning.answers_best_effort_atomic = true",
            _ => {
                "leave it out; a request of the check class that names this controller in processorInstance is answered anyway"
            }
        };
        return Some(ConfigMistake::new(key, what, fix));
    }
    if is_class_name(name) {
        return None;
    }
    let fix = "write lower-case letters, digits, '-' and '.', at most 253 of them";
    Some(ConfigMistake::new(key, format!("has {name:?}, which no class can be called"), fix))
}

/// True if the text is a DNS subdomain, as the kind requires.
fn is_class_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_driver_name)
}
