//! How important pods are that do not exist yet: what PriorityClasses say, as far as anybody needs to know.

use std::time::Duration;

use hostler_api::core::PodTemplateSpec;

use super::{
    core::HoldCore,
    event::{HoldCommand, PriorityClasses},
};

/// For so long a list is believed.
const FRESH: Duration = Duration::from_secs(60);

/// What is known of PriorityClasses.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    is_asked: bool,
    /// What they say, or why nobody knows, and since when.
    known: Option<(Duration, Result<PriorityClasses, String>)>,
}

impl HoldCore {
    /// How important a pod of this template is; `None` while that is being asked for. A number that the template says itself is
    /// none: no pod could have it.
    pub(super) fn priority_of(&mut self, template: &PodTemplateSpec) -> Option<Result<i32, String>> {
        let now = self.agenda.now;
        let known = self.priorities.known.as_ref().filter(|(since, _)| now.saturating_sub(*since) < FRESH);
        let Some((_, classes)) = known else {
            if !std::mem::replace(&mut self.priorities.is_asked, true) {
                self.commands.push(HoldCommand::ListPriorities);
            }
            return None;
        };
        Some(classes.as_ref().map_err(Clone::clone).and_then(|classes| priority_in(classes, template)))
    }

    pub(super) fn priorities_listed(&mut self, classes: Result<PriorityClasses, String>) {
        self.priorities = Priorities { is_asked: false, known: Some((self.agenda.now, classes)) };
        self.plan_soon();
    }
}

fn priority_in(classes: &PriorityClasses, template: &PodTemplateSpec) -> Result<i32, String> {
    let named = template.spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
    let Some(name) = named else { return Ok(classes.default) };
    classes.values.get(name).copied().ok_or_else(|| {
        format!(
            "there is no PriorityClass {name}; make it, or name another one in spec.template.spec.priorityClassName"
        )
    })
}
