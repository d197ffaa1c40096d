//! References of a selector: the facts of a device that it looks at. Devices with equal facts are equal to the
//! selector.

use std::collections::{BTreeSet, HashMap};

use super::{
    device::Property,
    plan::{Base, Node, Path},
    value::Value,
};

/// Facts that the answer of a selector can depend on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct References {
    /// Property, domain and id.
    pub names: BTreeSet<(Property, Box<str>, Box<str>)>,
    /// Domains of which everything of one kind counts.
    pub domains: BTreeSet<(Property, Box<str>)>,
    /// The driver's name.
    pub driver: bool,
    /// The flag that several claims can hold the device.
    pub allow_multiple_allocations: bool,
    /// All facts: the device is used as a whole.
    pub all: bool,
}

/// Domains that variables stand for.
type Bound = HashMap<usize, (Property, Box<str>)>;

impl References {
    pub(super) fn of(plan: &Node) -> Self {
        let (mut references, mut bound) = (Self::default(), Bound::new());
        references.visit(plan, &mut bound);
        references
    }

    /// Adds the references of another selector.
    pub fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.domains.extend(other.domains);
        self.driver |= other.driver;
        self.allow_multiple_allocations |= other.allow_multiple_allocations;
        self.all |= other.all;
    }

    fn visit(&mut self, node: &Node, bound: &mut Bound) {
        match node {
            Node::Path(path) => self.path(path, bound),
            Node::Fold(fold) => {
                let domain = domain_of(&fold.initial);
                match domain {
                    Some(domain) => drop(bound.insert(fold.accumulator, domain)),
                    None => self.visit(&fold.initial, bound),
                }
                // A walk over nothing only gives a name to what it begins with.
                let is_name = matches!(&fold.range, Node::Constant(Value::List(list)) if list.len() == 0);
                let walk = [&fold.range, &fold.condition, &fold.step].into_iter().filter(|_| !is_name);
                for part in walk.chain([&fold.result]) {
                    self.visit(part, bound);
                }
                return;
            }
            _ => {}
        }
        for part in node.parts() {
            self.visit(part, bound);
        }
    }

    fn path(&mut self, path: &Path, bound: &Bound) {
        let field = |at: usize| path.steps.get(at).and_then(|step| step.text());
        match &path.base {
            Base::Device => match field(0) {
                Some("driver") => self.driver = true,
                Some("allowMultipleAllocations") => self.allow_multiple_allocations = true,
                Some("attributes") => self.property(Property::Attribute, field(1), field(2)),
                Some("capacity") => self.property(Property::Capacity, field(1), field(2)),
                _ => self.all = true,
            },
            Base::Slot(slot) => {
                if let Some((property, domain)) = bound.get(slot) {
                    self.property(*property, Some(domain), field(0));
                }
            }
            Base::Value(_) | Base::Choice(_) => {}
        }
    }

    fn property(&mut self, property: Property, domain: Option<&str>, id: Option<&str>) {
        match (domain, id) {
            (Some(domain), Some(id)) => drop(self.names.insert((property, domain.into(), id.into()))),
            (Some(domain), None) => drop(self.domains.insert((property, domain.into()))),
            (None, _) => self.all = true,
        }
    }
}

/// The domain that `device.attributes["domain"]` is, if it is one.
fn domain_of(node: &Node) -> Option<(Property, Box<str>)> {
    let Node::Path(path) = node else { return None };
    let (Base::Device, [first, second], false) = (&path.base, path.steps.as_slice(), path.is_test) else { return None };
    let property = [Property::Attribute, Property::Capacity].into_iter().find(|it| first.text() == Some(it.field()))?;
    Some((property, second.text()?.into()))
}
