//! Matches of devices and selectors: every answer is found once and kept.

use super::{
    bits::DeviceBits,
    claims::CompiledClaims,
    fatal::Fatal,
    pools::NodePools,
    quirks::{Quirk, Quirks},
    version::{Feature, Features},
};

/// The reason why a device is not selected.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum NotSelected {
    /// The device has binding conditions, and the feature is off.
    BindingConditions,
    /// The selector with this index does not match.
    Selector(usize),
    /// The device is for other nodes.
    Node,
}

/// Selections of one search.
#[derive(Debug)]
pub(super) struct SelectionUse<'p, 'a> {
    compiled: &'p CompiledClaims<'a>,
    pools: &'p NodePools<'a>,
    binding_conditions: bool,
    knows_parts: bool,
    /// Known answers, by selection and device: the reason why the device is not selected, if it is not.
    answers: Vec<Option<Option<NotSelected>>>,
    /// Devices of which a selector has read all attributes.
    sound: DeviceBits,
}

impl<'p, 'a> SelectionUse<'p, 'a> {
    pub(super) fn new(
        features: Features,
        quirks: Quirks,
        compiled: &'p CompiledClaims<'a>,
        pools: &'p NodePools<'a>,
    ) -> Self {
        Self {
            compiled,
            pools,
            binding_conditions: features.has(Feature::DeviceBindingConditions),
            knows_parts: !quirks.has(Quirk::NoConsumableCapacity),
            answers: vec![None; compiled.selections.len() * pools.devices.len()],
            sound: DeviceBits::none(pools.devices.len()),
        }
    }

    /// Returns true if the device matches all selectors of a selection, and is for the node.
    pub(super) fn matches(&mut self, selection: usize, device: usize) -> Result<bool, Fatal> {
        Ok(self.judgement(selection, device)?.is_none())
    }

    /// Returns the reason why the device is not selected, if it is not.
    pub(super) fn judgement(&mut self, selection: usize, device: usize) -> Result<Option<NotSelected>, Fatal> {
        let at = selection * self.pools.devices.len() + device;
        if let Some(known) = self.answers[at] {
            return Ok(known);
        }
        let found = self.judge(selection, device)?;
        self.answers[at] = Some(found);
        Ok(found)
    }

    fn judge(&mut self, selection: usize, device: usize) -> Result<Option<NotSelected>, Fatal> {
        let at = &self.pools.devices[device];
        if !self.binding_conditions && !at.device.binding_conditions.is_empty() {
            return Ok(Some(NotSelected::BindingConditions));
        }
        for selector in 0..self.compiled.selections[selection].selectors.len() {
            if !self.is_selected_by(selection, selector, device)? {
                return Ok(Some(NotSelected::Selector(selector)));
            }
        }
        let is_for = at.is_for(&self.pools.node);
        let is_for = is_for.map_err(|error| {
            let reason = error.to_string();
            Fatal::NodeSelector { device: at.full_name(), reason }
        });
        Ok((!is_for?).then_some(NotSelected::Node))
    }

    fn is_selected_by(&mut self, selection: usize, selector: usize, device: usize) -> Result<bool, Fatal> {
        let (selection, at) = (&self.compiled.selections[selection], &self.pools.devices[device]);
        let (owner, text) = (|| selection.owner(selector), || selection.quoted(selector).into_owned());
        // A class may have been written by a later version; upstream fails on it at the first device that it looks at.
        let compiled = selection.selectors[selector].as_ref();
        let compiled =
            compiled.ok_or_else(|| Fatal::EmptyClassSelector { class: selection.class_name().to_owned() })?;
        let compiled = compiled.as_ref().as_ref().map_err(|error| Fatal::Compile {
            owner: owner(),
            selector: text(),
            reason: error.to_string(),
        })?;
        let facts = at.facts(self.knows_parts);
        let fault = if self.sound.has(device) { None } else { compiled.fault(&facts) };
        let answer = fault.map_or_else(|| compiled.matches_sound(&facts), Err).map_err(|error| Fatal::Evaluate {
            owner: owner(),
            selector: text(),
            device: at.full_name(),
            reason: error.to_string(),
        })?;
        self.sound.insert(device);
        Ok(answer)
    }
}
