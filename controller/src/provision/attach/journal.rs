//! The plan of a request in its status: written before the first step, and removed when all devices are detached.

use hostler_api::provisioning::ProvisioningConditionType as Type;
use serde::{Deserialize, Serialize};

use super::{AttachOrder, AttachStep, AttachToken};
use crate::requests::SeenRequest;

/// The detail of the status that has the plan.
pub(in crate::provision) const ATTACH: &str = "attach";

/// The plan of a request and its progress.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(in crate::provision) struct AttachJournal {
    /// Number of steps that were planned before and are taken back: a late call of those cannot be taken for one of
    /// these.
    from: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<AttachStep>,
    /// The reason why all steps are to be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    back: Option<String>,
}

impl AttachJournal {
    /// Reads the plan from a request. A text that another writer put there is no plan.
    pub(in crate::provision) fn of(request: &SeenRequest) -> Self {
        let text = request.status.provisioning_class_details.get(ATTACH);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    pub(in crate::provision) fn with(self, steps: Vec<AttachStep>) -> Self {
        Self { steps, back: None, ..self }
    }

    pub(in crate::provision) fn taken_back(self, why: String) -> Self {
        Self { back: Some(why), ..self }
    }

    pub(in crate::provision) fn done(self) -> Self {
        let planned = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        Self { from: self.from.saturating_add(planned), ..Self::default() }
    }

    pub(in crate::provision) fn steps(&self) -> &[AttachStep] {
        &self.steps
    }

    pub(in crate::provision) fn into_steps(self) -> Vec<AttachStep> {
        self.steps
    }

    /// Returns the reason why everything is detached, if it is.
    pub(in crate::provision) fn back(&self) -> Option<&str> {
        self.back.as_deref()
    }

    /// Returns the steps with their tokens.
    pub(in crate::provision) fn orders<'a>(
        &'a self,
        request: &'a SeenRequest,
    ) -> impl Iterator<Item = AttachOrder> + 'a {
        (self.from..).zip(&self.steps).map(|(index, step)| AttachOrder {
            token: AttachToken { request: request.uid().to_owned(), index },
            step: step.clone(),
        })
    }

    pub(in crate::provision) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the plan of a request that has no promise yet: it is continued until then, or until all devices are
/// detached.
pub(in crate::provision) fn live(request: &SeenRequest) -> Option<AttachJournal> {
    let journal = AttachJournal::of(request);
    (!journal.steps.is_empty() && !request.status.is(Type::Provisioned)).then_some(journal)
}
