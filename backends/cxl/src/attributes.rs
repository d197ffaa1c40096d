//! Collects what is known of a device as attributes; what is not known is left out.

use hostler_api::{QualifiedName, Quantity};
use hostler_backend::{AttributeValue, Attributes, Capacities, Capacity, RequestPolicy};

/// The API server takes strings of at most so many bytes.
const LONGEST_TEXT: usize = 64;

/// Attributes in the making. Names are literals, so that each is valid for certain.
#[derive(Debug, Default)]
pub(crate) struct AttributeBuilder(Attributes);

impl AttributeBuilder {
    /// Of a kind of device, which every device of this backend tells.
    pub(crate) fn of_kind(kind: &'static str) -> Self {
        let mut attributes = Self::default();
        attributes.text("kind", Some(kind));
        attributes
    }

    pub(crate) fn number(&mut self, name: &'static str, value: Option<impl Into<u64>>) {
        let value = value.and_then(|value| i64::try_from(value.into()).ok());
        self.put(name, value.map(AttributeValue::Int));
    }

    pub(crate) fn flag(&mut self, name: &'static str, value: Option<bool>) {
        self.put(name, value.map(AttributeValue::Bool));
    }

    /// Text; empty text says nothing.
    pub(crate) fn text(&mut self, name: &'static str, value: Option<impl AsRef<str>>) {
        let shown = |text: &str| Some(shortened(text)).filter(|text| !text.is_empty()).map(AttributeValue::from);
        self.put(name, value.and_then(|text| shown(text.as_ref())));
    }

    /// A number that people know in hexadecimal: `0x8086`.
    pub(crate) fn id(&mut self, name: &'static str, value: Option<u16>) {
        self.text(name, value.map(|value| format!("{value:#06x}")));
    }

    pub(crate) fn done(self) -> Attributes {
        self.0
    }

    fn put(&mut self, name: &'static str, value: Option<AttributeValue>) {
        if let Some(value) = value {
            self.0.insert(qualified(name), value);
        }
    }
}

/// Adds a capacity in bytes, unless there is none.
pub(crate) fn put_bytes(capacities: &mut Capacities, name: &'static str, bytes: u64, step: Option<u64>) {
    let policy = step.map(|step| {
        let step = Quantity::whole(step);
        RequestPolicy { default: step, min: step, step }
    });
    if bytes > 0 {
        capacities.insert(qualified(name), Capacity { value: Quantity::whole(bytes), policy });
    }
}

/// A name of an attribute or a capacity.
#[expect(clippy::expect_used, reason = "only called with literals, all of which a test enumerates")]
pub(crate) fn qualified(name: &'static str) -> QualifiedName {
    QualifiedName::new(name).expect("a valid name")
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out_and_text_is_cut_between_characters() {
        let mut attributes = AttributeBuilder::of_kind("memory");
        attributes.number("tier", None::<u64>);
        attributes.text("driver", Some(""));
        attributes.id("vendor", Some(0x10ee));
        attributes.text("firmwareVersion", Some(format!("{}é", "a".repeat(63))));
        let attributes = attributes.done();
        assert_eq!(attributes.len(), 3);
        assert_eq!(attributes["vendor"], "0x10ee".into());
        assert_eq!(attributes["firmwareVersion"], "a".repeat(63).as_str().into());
    }
}
