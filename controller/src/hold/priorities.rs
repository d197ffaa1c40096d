//! The priority of pods that do not exist yet, by their PriorityClass.

use std::time::Duration;

use hostler_api::core::PodTemplateSpec;

use super::{
    context::{HoldContext, HoldEffect},
    objects::PriorityClasses,
};

/// Time for which a list counts.
const FRESH: Duration = Duration::from_secs(60);

/// Returns the priority of a pod of this template; `None` while PriorityClasses are being listed. A number in the
/// template itself does not count: no pod could have it.
pub(super) fn priority_of(cx: &mut HoldContext<'_>, template: &PodTemplateSpec) -> Option<Result<i32, String>> {
    let known = cx.cluster.priorities.known(cx.now, FRESH);
    if known.is_none() {
        cx.push(HoldEffect::ListPriorities);
    }
    Some(known?.as_ref().map_err(Clone::clone).and_then(|classes| priority_in(classes, template)))
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
