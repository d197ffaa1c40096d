//! Compiler from a syntax tree to a plan: resolves names, checks types, and decides everything that can be decided.

mod calls;
mod formatting;

use super::{
    CelOptions, CompileError,
    ast::{Expression, Fold, Kind, RESULT},
    plan::{Base, FoldNode, Node},
    types::{DURATION, Inference, TIMESTAMP, Type, most_general},
    value::Value,
};
use formatting::Formatting;

/// Types made of more parts than this are refused: nothing sensible has one, and they can grow without bound.
const HEAVIEST_TYPE: usize = 10_000;

/// Types of the elements of a list or a map, which have to be of one type.
type Aggregate = Vec<Type>;

/// A part with its type.
type Typed = (Type, Node);

/// Compiles one expression.
pub(super) struct Compiler<'a> {
    options: &'a CelOptions,
    inference: Inference,
    scopes: Vec<Variable>,
    slots: usize,
    aggregates: Vec<Aggregate>,
    /// Variables that were used before their types were found.
    uses: Vec<(Box<str>, Type)>,
    formatting: Formatting,
}

/// A name that a macro introduced.
struct Variable {
    name: Box<str>,
    ty: Type,
    slot: usize,
}

/// Returns the plan of an expression, and the number of slots that its variables need.
pub(super) fn compile(expression: &Expression, options: &CelOptions) -> Result<(Node, usize), CompileError> {
    let (inference, formatting) = (Inference::default(), Formatting::default());
    let (scopes, aggregates, uses) = (Vec::new(), Vec::new(), Vec::new());
    let mut compiler = Compiler { options, inference, scopes, slots: 0, aggregates, uses, formatting };
    let (ty, node) = compiler.expression(expression)?;
    compiler.check_aggregates()?;
    compiler.check_uses()?;
    compiler.formatting.check(&compiler.inference)?;
    match compiler.inference.settled(&ty) {
        Type::Bool | Type::Any => Ok((node, compiler.slots)),
        Type::Dyn if options.list_attributes => Ok((node, compiler.slots)),
        other => Err(CompileError::NotBool(other.to_string())),
    }
}

impl Compiler<'_> {
    fn expression(&mut self, expression: &Expression) -> Result<Typed, CompileError> {
        let (ty, node) = match &expression.kind {
            Kind::Literal(value) => (value.type_of(), Node::Constant(value.clone())),
            Kind::Name(name) => self.name(name)?,
            Kind::Select { operand, field, is_test } => self.select(operand, field, *is_test)?,
            Kind::Call { function, target, arguments } => self.call(function, target.as_deref(), arguments)?,
            Kind::List(elements) => self.list(elements)?,
            Kind::Map(entries) => self.map(entries)?,
            Kind::Fold(fold) => self.fold(fold)?,
        };
        self.formatting.note(expression, &ty);
        match ty.weight(HEAVIEST_TYPE) > HEAVIEST_TYPE {
            true => Err(CompileError::Unsupported("a type of very many parts".to_owned())),
            false => Ok((ty, node)),
        }
    }

    fn name(&mut self, name: &str) -> Result<Typed, CompileError> {
        let variable = self.scopes.iter().rev().find(|variable| *variable.name == *name);
        if let Some(Variable { ty, slot, .. }) = variable {
            let (ty, slot) = (ty.clone(), *slot);
            return match self.inference.resolved(&ty) {
                Type::Meta(_) => named_type(name),
                resolved => {
                    self.uses.extend(matches!(resolved, Type::Variable(_)).then(|| (name.into(), ty.clone())));
                    Ok((ty, Node::path(Base::Slot(slot))))
                }
            };
        }
        match name.strip_prefix('.').unwrap_or(name) {
            "device" => Ok((Type::Struct(DEVICE), Node::path(Base::Device))),
            other => named_type(other),
        }
    }

    fn select(&mut self, operand: &Expression, field: &str, is_test: bool) -> Result<Typed, CompileError> {
        if let Some(found) = self.qualified(operand, field).filter(|_| !is_test) {
            return Ok(found);
        }
        let (operand, node) = self.expression(operand)?;
        let ty = self.field_type(&operand, field, false)?;
        let node = node.stepped(Node::Constant(Value::text(field)), false, is_test);
        Ok((if is_test { Type::Bool } else { ty }, node))
    }

    /// A type or a constant whose name has points in it.
    fn qualified(&self, operand: &Expression, field: &str) -> Option<Typed> {
        let path = operand.dotted()?;
        let is_variable = |name: &str| self.scopes.iter().any(|variable| *variable.name == *name);
        match path.split('.').find(|part| !part.is_empty()) {
            Some(name) if is_variable(name) && !path.starts_with('.') => None,
            _ => type_name(format!("{path}.{field}").trim_start_matches('.')),
        }
    }

    /// The type of a field; `is_optional` for `.?`.
    fn field_type(&mut self, operand: &Type, field: &str, is_optional: bool) -> Result<Type, CompileError> {
        let operand = self.inference.resolved(operand);
        let inside = operand.as_optional().unwrap_or(&operand);
        let found = match inside {
            Type::Map(entry) => entry.1.clone(),
            Type::Struct(DEVICE) => self.device_field(field)?,
            Type::Variable(_) => {
                self.inference.assign(&Type::Dyn, inside);
                Type::Dyn
            }
            Type::Dyn | Type::Any => Type::Dyn,
            other => return Err(CompileError::NoFields { of: other.to_string(), field: field.to_owned() }),
        };
        let is_optional = is_optional || operand.as_optional().is_some();
        Ok(self.inference.resolved(&if is_optional { Type::optional(found) } else { found }))
    }

    fn device_field(&self, field: &str) -> Result<Type, CompileError> {
        let domains = |value| Type::map(Type::Text, Type::map(Type::Text, value));
        match field {
            "driver" => Ok(Type::Text),
            "attributes" => Ok(domains(if self.options.list_attributes { Type::Dyn } else { Type::Any })),
            "capacity" => Ok(domains(Type::Struct("kubernetes.Quantity"))),
            "allowMultipleAllocations" => Ok(Type::Bool),
            _ => Err(CompileError::NoFields { of: "device".to_owned(), field: field.to_owned() }),
        }
    }

    fn list(&mut self, elements: &[(Expression, bool)]) -> Result<Typed, CompileError> {
        let (mut joined, mut types, mut nodes) = (None, Vec::new(), Vec::new());
        for (element, is_optional) in elements {
            let (ty, node) = self.expression(element)?;
            let ty = self.element_type(&ty, *is_optional)?;
            joined = Some(self.join(joined, &ty)?);
            types.push(ty);
            nodes.push((node, *is_optional));
        }
        self.same(types);
        let element = joined.unwrap_or_else(|| self.inference.variable());
        let constants: Option<Vec<_>> =
            nodes.iter().map(|(node, is_optional)| node.constant().filter(|_| !is_optional).cloned()).collect();
        let node = constants.map_or_else(|| Node::List(nodes.into()), |values| Node::Constant(Value::list(values)));
        Ok((Type::list(element), node))
    }

    fn map(&mut self, entries: &[(Expression, Expression, bool)]) -> Result<Typed, CompileError> {
        let (mut joined, mut types, mut nodes) = ([None, None], [Vec::new(), Vec::new()], Vec::new());
        for (key, value, is_optional) in entries {
            let (key_type, key) = self.expression(key)?;
            let (value_type, value) = self.expression(value)?;
            let value_type = self.element_type(&value_type, *is_optional)?;
            for (at, ty) in [key_type, value_type].into_iter().enumerate() {
                joined[at] = Some(self.join(joined[at].take(), &ty)?);
                types[at].push(ty);
            }
            nodes.push((key, value, *is_optional));
        }
        types.into_iter().for_each(|types| self.same(types));
        let [key, value] = joined.map(|ty| ty.unwrap_or_else(|| self.inference.variable()));
        Ok((Type::map(key, value), calls::constant_map(&nodes).unwrap_or_else(|| Node::Map(nodes.into()))))
    }

    /// Type of an element, without the wrapping of an optional one.
    fn element_type(&self, ty: &Type, is_optional: bool) -> Result<Type, CompileError> {
        match (is_optional, ty.as_optional()) {
            (true, Some(inside)) => Ok(inside.clone()),
            (true, None) if !ty.is_dyn() => {
                Err(CompileError::Type { expected: Type::optional(ty.clone()).to_string(), found: ty.to_string() })
            }
            _ => Ok(ty.clone()),
        }
    }

    /// Notes types that have to be one type, unless `format` writes the values.
    fn same(&mut self, types: Aggregate) {
        if !self.formatting.is_inside() {
            self.aggregates.push(types);
        }
    }

    /// The type of elements of both types, which must agree.
    fn join(&mut self, before: Option<Type>, ty: &Type) -> Result<Type, CompileError> {
        match before {
            None => Ok(ty.clone()),
            Some(before) if self.inference.assign(&before, ty) => Ok(most_general(&before, ty)),
            Some(_) if self.formatting.is_inside() => Ok(Type::Dyn),
            Some(before) => Err(self.mismatch(&before, ty)),
        }
    }

    /// Checks that elements not only agree, but are of the same type, as Kubernetes demands.
    fn check_aggregates(&self) -> Result<(), CompileError> {
        for types in &self.aggregates {
            let mut types = types.iter().map(|ty| self.inference.settled(ty));
            let Some(first) = types.next() else { continue };
            if let Some(other) = types.find(|ty| *ty != first) {
                return Err(self.mismatch(&first, &other));
            }
        }
        Ok(())
    }

    /// Refuses variables that hold a type: Kubernetes takes such a name for the name of a type, also where its type
    /// is found later.
    fn check_uses(&self) -> Result<(), CompileError> {
        let holds_type = |ty: &Type| matches!(self.inference.settled(ty), Type::Meta(_));
        self.uses.iter().filter(|(_, ty)| holds_type(ty)).try_for_each(|(name, _)| match type_name(name) {
            None => Err(CompileError::UnknownName(name.to_string())),
            Some(_) => Err(CompileError::Unsupported(format!("the variable {name} in place of the type {name}"))),
        })
    }

    fn mismatch(&self, expected: &Type, found: &Type) -> CompileError {
        let [expected, found] = [expected, found].map(|ty| self.inference.settled(ty).to_string());
        CompileError::Type { expected, found }
    }

    fn fold(&mut self, fold: &Fold) -> Result<Typed, CompileError> {
        let (range_type, range) = self.expression(&fold.range)?;
        let (accumulated, initial) = self.expression(&fold.initial)?;
        let variable_types = self.iterated(&range_type, fold.names[1].is_some())?;
        let depth = self.scopes.len();
        let accumulator = self.declare(&fold.accumulator, accumulated.clone());
        let mut variables = [None, None];
        for (at, (name, ty)) in fold.names.iter().zip(variable_types).enumerate() {
            variables[at] = name.as_deref().map(|name| self.declare(name, ty));
        }
        let condition = self.expected(&fold.condition, &Type::Bool)?;
        let step = self.expected(&fold.step, &accumulated)?;
        self.scopes.truncate(depth + 1);
        let (ty, result) = self.expression(&fold.result)?;
        self.scopes.truncate(depth);
        let node = FoldNode { range, variables, accumulator, initial, condition, step, result };
        Ok((self.inference.resolved(&ty), Node::Fold(Box::new(node))))
    }

    /// The types of a macro's variables.
    fn iterated(&mut self, range: &Type, are_two: bool) -> Result<[Type; 2], CompileError> {
        match self.inference.resolved(range) {
            Type::List(element) if are_two => Ok([Type::Int, (*element).clone()]),
            Type::List(element) => Ok([(*element).clone(), Type::Dyn]),
            Type::Map(entry) => Ok([entry.0.clone(), entry.1.clone()]),
            // An attribute that can have but one value is nothing to walk over.
            other @ (Type::Dyn | Type::Variable(_)) => {
                self.inference.assign(&Type::Dyn, &other);
                Ok([Type::Dyn, Type::Dyn])
            }
            other => Err(CompileError::Type { expected: "list or map".to_owned(), found: other.to_string() }),
        }
    }

    fn declare(&mut self, name: &str, ty: Type) -> usize {
        self.slots += 1;
        self.scopes.push(Variable { name: name.into(), ty, slot: self.slots - 1 });
        self.slots - 1
    }

    fn expected(&mut self, expression: &Expression, wanted: &Type) -> Result<Node, CompileError> {
        let (ty, node) = self.expression(expression)?;
        match self.inference.assign(wanted, &ty) {
            true => Ok(node),
            false => Err(self.mismatch(wanted, &ty)),
        }
    }
}

/// Name of the type of `device`.
const DEVICE: &str = "kubernetes.DRADevice";

fn named_type(name: &str) -> Result<Typed, CompileError> {
    type_name(name).ok_or_else(|| CompileError::UnknownName(name.to_owned()))
}

/// A name for a type or for the only constant, which expressions compare with the result of `type()`.
fn type_name(name: &str) -> Option<Typed> {
    let ty = match name {
        "google.protobuf.NullValue.NULL_VALUE" => return Some((Type::Int, Node::Constant(Value::Int(0)))),
        "google.protobuf.Timestamp" => TIMESTAMP,
        "google.protobuf.Duration" => DURATION,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::Text,
        "type" => Type::Meta(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::opaque("net.IP"),
        "net.CIDR" => Type::opaque("net.CIDR"),
        _ => return None,
    };
    Some((Type::Meta(Some(ty.clone().into())), Node::Constant(Value::Type(ty.into()))))
}

/// True if an expression is the result that a macro collects.
fn is_result(expression: &Expression) -> bool {
    matches!(&expression.kind, Kind::Name(name) if **name == *RESULT)
}
