//! Calls: the choice of the overload, and the calculation of constant results.

use std::collections::BTreeMap;

use super::{
    super::{
        CompileError,
        ast::{Expression, Kind},
        cost::{Cost, Meter},
        declarations::{Overload, overloads},
        functions::{Function, name_of_1_34},
        plan::{Base, Insertion, Node},
        regex::Regex,
        types::{DURATION, Type},
        value::{Key, Map, Value},
    },
    Compiler, Typed, is_result,
};

/// True for operators and functions that decide by the values themselves, whichever overloads were found to fit.
fn has_one_body(name: &str) -> bool {
    name.contains(['_', '@']) || ["matches", "size"].contains(&name)
}

impl Compiler<'_> {
    pub(super) fn call(
        &mut self,
        function: &str,
        target: Option<&Expression>,
        arguments: &[Expression],
    ) -> Result<Typed, CompileError> {
        match function {
            "_?._" => return self.optional_select(arguments),
            "_&&_" | "_||_" => return self.logical(function == "_&&_", arguments),
            _ => {}
        }
        let (name, target) = match target.and_then(|target| self.namespaced(target, function)) {
            Some(name) => (name, None),
            None => (function.strip_prefix('.').unwrap_or(function).to_owned(), target),
        };
        if name == "format" {
            self.formatting.enter();
        }
        let typed = arguments.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>, _>>()?;
        let target_typed = target.map(|target| self.expression(target)).transpose()?;
        if name == "format" {
            target.into_iter().for_each(|target| self.formatting.call(target, arguments));
            self.formatting.leave();
        }
        let target = target_typed;
        let given: Vec<Type> = target.iter().chain(&typed).map(|(ty, _)| ty.clone()).collect();
        let is_open = |ty: &Type| matches!(ty, Type::Variable(_));
        let open: Vec<bool> = given.iter().map(|ty| is_open(&self.inference.resolved(ty))).collect();
        let (ty, cost, is_decided) = self.resolve(&name, target.is_some(), &given)?;
        let collects = arguments.first().is_some_and(is_result) && is_collected(&name, arguments);
        let mut nodes: Vec<Node> = target.into_iter().chain(typed).map(|(_, node)| node).collect();
        // Kubernetes calls the overload that is left, and that takes nothing else.
        for (at, ty) in given.iter().enumerate().filter(|(at, _)| is_decided && open[*at] && !has_one_body(&name)) {
            let ty = self.inference.resolved(ty);
            if !is_open(&ty) && !ty.is_dyn() {
                let node = std::mem::replace(&mut nodes[at], Node::Constant(Value::Null));
                nodes[at] = Node::Expected(Box::new(node), ty);
            }
        }
        let mut node = if collects { collect(nodes)? } else { plan(self.variant(&name, &ty), nodes, cost)? };
        if let Node::Call { is_in_turn, .. } = &mut node {
            *is_in_turn = !is_decided && !has_one_body(&name);
        }
        Ok((ty, node))
    }

    /// The full name of a function whose target is only a part of its name.
    fn namespaced(&self, target: &Expression, function: &str) -> Option<String> {
        let prefix = target.dotted()?;
        let name = format!("{}.{function}", prefix.trim_start_matches('.'));
        overloads(&name, self.options.includes).map(|_| name)
    }

    /// Name of the function that calculates a call, where that depends on more than the call's name.
    fn variant<'n>(&self, name: &'n str, ty: &Type) -> &'n str {
        match name {
            // The sum of nothing is nothing of its type.
            "sum" if *ty == Type::Uint => "sum of uints",
            "sum" if *ty == Type::Double => "sum of doubles",
            "sum" if *ty == DURATION => "sum of durations",
            name if self.options.old_words => name_of_1_34(name).unwrap_or(name),
            name => name,
        }
    }

    /// Resolves a call to its type, its cost, and whether the overload is known before it runs.
    fn resolve(&mut self, name: &str, is_member: bool, given: &[Type]) -> Result<(Type, Cost, bool), CompileError> {
        let Some(overloads) = overloads(name, self.options.includes) else {
            return Err(CompileError::UnknownFunction(name.to_owned()));
        };
        let (mut result, mut costs) = (None, Vec::new());
        for overload in overloads.iter().filter(|overload| overload.is_member == is_member) {
            let Some(ty) = self.matched(overload, given) else { continue };
            costs.push(overload.cost);
            result = Some(match result {
                None => ty,
                Some(result) if result == ty || matches!(result, Type::Dyn | Type::Any) => result,
                Some(_) => Type::Dyn,
            });
        }
        let decided = if let [cost] = costs[..] { Some(cost) } else { None };
        let cost = Cost::by_function(name).or(decided).unwrap_or_else(|| Cost::of_any_overload(name));
        result.map(|ty| (ty, cost, decided.is_some())).ok_or_else(|| self.no_overload(name, given))
    }

    /// Type of a call if that overload takes the given arguments.
    fn matched(&mut self, overload: &Overload, given: &[Type]) -> Option<Type> {
        if overload.arguments.len() != given.len() {
            return None;
        }
        let first = self.inference.variables(2);
        let wanted: Vec<Type> = overload.arguments.iter().map(|ty| ty.instantiated(first)).collect();
        let fits = self.inference.assign_all(&wanted, given);
        fits.then(|| self.inference.resolved(&overload.result.instantiated(first)))
    }

    fn no_overload(&self, name: &str, given: &[Type]) -> CompileError {
        let given = given.iter().map(|ty| self.inference.settled(ty).to_string()).collect::<Vec<_>>().join(", ");
        CompileError::NoOverload { function: name.to_owned(), given }
    }

    fn optional_select(&mut self, arguments: &[Expression]) -> Result<Typed, CompileError> {
        let [operand, Expression { kind: Kind::Literal(Value::Text(field)), .. }] = arguments else {
            return Err(CompileError::Syntax("a field must be a name".to_owned()));
        };
        let (operand, node) = self.expression(operand)?;
        let ty = self.field_type(&operand, field, true)?;
        Ok((ty, node.stepped(Node::Constant(Value::Text(field.clone())), true, false)))
    }

    fn logical(&mut self, is_and: bool, terms: &[Expression]) -> Result<Typed, CompileError> {
        let mut nodes = Vec::with_capacity(terms.len());
        for term in terms {
            let (ty, node) = self.expression(term)?;
            if !self.inference.assign(&ty, &Type::Bool) {
                return Err(self.mismatch(&Type::Bool, &ty));
            }
            nodes.push(node);
        }
        Ok((Type::Bool, if is_and { Node::And(nodes.into()) } else { Node::Or(nodes.into()) }))
    }
}

fn is_collected(name: &str, arguments: &[Expression]) -> bool {
    match name {
        "_+_" => matches!(arguments.get(1), Some(Expression { kind: Kind::List(_), .. })),
        "cel.@mapInsert" => true,
        _ => false,
    }
}

fn collect(mut nodes: Vec<Node>) -> Result<Node, CompileError> {
    let lost = || CompileError::Unsupported("this macro".to_owned());
    let Node::Path(path) = nodes.remove(0) else { return Err(lost()) };
    let Base::Slot(slot) = path.base else { return Err(lost()) };
    let insertion = match nodes.as_slice() {
        [Node::List(_) | Node::Constant(Value::List(_))] => Insertion::Append,
        [_] => Insertion::Entries,
        _ => Insertion::Entry,
    };
    Ok(Node::Collect { slot, insertion, arguments: nodes.into() })
}

/// Plans a call.
fn plan(name: &str, mut nodes: Vec<Node>, cost: Cost) -> Result<Node, CompileError> {
    let pair = |nodes: Vec<Node>| <[Node; 2]>::try_from(nodes).map(Box::new);
    let lost = |_| CompileError::Unsupported(format!("this use of {name}"));
    match (name, nodes.as_slice()) {
        ("_?_:_", [_, _, _]) => {
            let nodes = <[Node; 3]>::try_from(nodes).map_err(lost)?;
            Ok(Node::path(Base::Choice(Box::new(nodes))))
        }
        ("_[_]" | "_[?_]", [_, _]) => {
            let key = nodes.remove(1);
            if let Some(key) = key.constant().filter(|key| !key.is_index()) {
                return Err(CompileError::Constant(format!("nothing is found by a {}", key.type_of())));
            }
            Ok(nodes.remove(0).stepped(key, name == "_[?_]", false))
        }
        ("_==_" | "_!=_", [_, _]) => Ok(Node::Equal { sides: pair(nodes).map_err(lost)?, is_negated: name == "_!=_" }),
        ("or" | "orValue", [_, _]) => {
            Ok(Node::Otherwise { sides: pair(nodes).map_err(lost)?, is_value: name == "orValue" })
        }
        ("@in", [_, Node::Constant(Value::List(list))]) if cost == Cost::SizeOfSecond => {
            let constants: Option<Vec<_>> = list.iter().map(|value| is_simple(&value).then_some(value)).collect();
            match constants {
                Some(none) if none.is_empty() => Ok(Node::Constant(Value::Bool(false))),
                Some(constants) => Ok(Node::OneOf(Box::new(nodes.remove(0)), constants.into())),
                None => plain_call(name, nodes, cost),
            }
        }
        _ => plain_call(name, nodes, cost),
    }
}

/// True for constants that Kubernetes looks up instead of comparing one by one.
fn is_simple(value: &Value<'_>) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Text(_))
}

fn plain_call(name: &str, mut nodes: Vec<Node>, cost: Cost) -> Result<Node, CompileError> {
    if let ("@not_strictly_false", [_]) = (name, nodes.as_slice()) {
        return Ok(Node::NotStrictlyFalse(Box::new(nodes.remove(0))));
    }
    let function = Function::named(name).ok_or_else(|| CompileError::Unsupported(format!("function {name}")))?;
    if let Some(regex) = pattern(name, &nodes)? {
        return Ok(Node::Pattern { function, regex: Box::new(regex), arguments: nodes.into(), cost });
    }
    let constants: Option<Vec<Value<'static>>> = nodes.iter().map(|node| node.constant().cloned()).collect();
    let Some(constants) = constants.filter(|_| function.is_conversion() || function.is_reading()) else {
        return Ok(Node::Call { function, arguments: nodes.into(), cost, is_in_turn: false });
    };
    match function.call(&constants, &mut Meter::default()) {
        Ok(value) if function.is_conversion() => Ok(Node::Constant(value)),
        Ok(value) => {
            let cost = cost.of(&constants, Some(&value), Meter::default().work());
            Ok(Node::Known(value, cost))
        }
        // A constant that cannot be converted is refused at once, one that cannot be read when it is needed.
        Err(error) if function.is_conversion() => Err(CompileError::Constant(error.to_string())),
        Err(_) => Ok(Node::Call { function, arguments: nodes.into(), cost, is_in_turn: false }),
    }
}

/// The regular expression of a call, if it is a constant; then it has to be one.
fn pattern(name: &str, nodes: &[Node]) -> Result<Option<Regex>, CompileError> {
    match (name, nodes) {
        ("matches" | "find" | "findAll", [_, Node::Constant(Value::Text(pattern)), ..]) => {
            Ok(Some(Regex::new(pattern)?))
        }
        _ => Ok(None),
    }
}

/// The map of entries that are all constants.
pub(super) fn constant_map(entries: &[(Node, Node, bool)]) -> Option<Node> {
    let constants = entries.iter().map(|(key, value, is_optional)| {
        let key = Key::of(key.constant()?).filter(|_| !is_optional)?;
        Some((key, value.constant()?.clone()))
    });
    let entries: BTreeMap<_, _> = constants.collect::<Option<_>>()?;
    Some(Node::Constant(Value::Map(Map::new(entries))))
}
