//! How important pods are that do not exist yet: what PriorityClasses say, as far as anybody needs to know.

use std::time::Duration;

use hostler_api::core::PodTemplateSpec;

use super::{
    core::HoldCore,
    event::{HoldCommand, PriorityClasses},
};

/// For so long a list is believed.
const FRESH: Duration = Duration::from_secs(60);

impl HoldCore {
    /// How important a pod of this template is; `None` while that is being asked for. A number that the template says itself is
    /// none: no pod could have it.
    pub(super) fn priority_of(&mut self, template: &PodTemplateSpec) -> Option<Result<i32, String>> {
        let now = self.agenda.now;
        let Some(classes) = self.priorities.known(now, FRESH) else {
            if self.priorities.asks() {
                self.commands.push(HoldCommand::ListPriorities);
            }
            return None;
        };
        Some(classes.as_ref().map_err(Clone::clone).and_then(|classes| priority_in(classes, template)))
    }

    pub(super) fn priorities_listed(&mut self, classes: Result<PriorityClasses, String>) {
        self.priorities.told(self.agenda.now, classes);
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
