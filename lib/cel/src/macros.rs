//! Calls that stand for longer expressions: `has`, `all`, `exists`, `map`, `filter`, `cel.bind`, `optMap` and their
//! relatives.

use super::{
    CompileError,
    ast::{Expression, Fold, Kind, RESULT},
    value::Value,
};

type Expanded = Result<Expression, CompileError>;

/// The variables of a walk, of which the second can be missing.
type Names = [Option<Box<str>>; 2];

/// A call without a target.
pub(super) fn global(function: &str, mut arguments: Vec<Expression>) -> Expanded {
    if function != "has" || arguments.len() != 1 {
        return Expression::call(function, arguments);
    }
    match arguments.remove(0).kind {
        Kind::Select { operand, field, is_test: false } => {
            Expression::new(Kind::Select { operand, field, is_test: true })
        }
        _ => Err(CompileError::Syntax("has() wants a field, as in has(device.driver)".to_owned())),
    }
}

/// A call with a target.
pub(super) fn member(target: Expression, function: &str, arguments: Vec<Expression>) -> Expanded {
    match (function, arguments.len()) {
        ("all" | "exists" | "exists_one", 2 | 3) | ("existsOne", 3) => quantifier(function, target, arguments),
        ("map", 2 | 3) | ("transformList", 3 | 4) => transform_list(target, arguments, function == "map"),
        ("filter", 2) => filter(target, arguments),
        ("transformMap" | "transformMapEntry", 3 | 4) => transform_map(target, arguments, function == "transformMap"),
        ("bind", 3) if matches!(&target.kind, Kind::Name(name) if **name == *"cel") => bind_macro(arguments),
        ("optMap" | "optFlatMap", 2) => optional_map(target, arguments, function == "optMap"),
        ("sortBy", 2) => sort_by(target, arguments),
        _ => Expression::member_call(target, function, arguments),
    }
}

/// The names in front of the last arguments, and those.
fn names(mut arguments: Vec<Expression>, count: usize) -> Result<(Names, Vec<Expression>), CompileError> {
    let rest = arguments.split_off(count);
    let mut names = arguments.into_iter().map(simple_name);
    let [first, second] = [names.next().transpose()?, names.next().transpose()?];
    if first == second {
        return Err(CompileError::Syntax("the two variables have the same name".to_owned()));
    }
    if [&first, &second].into_iter().flatten().any(|name| **name == *"__result__") {
        return Err(CompileError::Syntax("__result__ is reserved".to_owned()));
    }
    Ok(([first, second], rest))
}

fn simple_name(expression: Expression) -> Result<Box<str>, CompileError> {
    match expression.kind {
        Kind::Name(name) => Ok(name),
        _ => Err(CompileError::Syntax("the variable of a macro must be a simple name".to_owned())),
    }
}

fn result() -> Expression {
    Expression::name(RESULT)
}

fn constant(value: bool) -> Expression {
    Expression::literal(Value::Bool(value))
}

fn quantifier(function: &str, range: Expression, arguments: Vec<Expression>) -> Expanded {
    let count = arguments.len() - 1;
    let (names, mut rest) = names(arguments, count)?;
    let predicate = rest.remove(0);
    let go_on = |condition| Expression::call("@not_strictly_false", vec![condition]);
    let [one, none] = [1, 0].map(|number| Expression::literal(Value::Int(number)));
    let (initial, condition, step, end) = match function {
        "all" => (constant(true), go_on(result())?, Expression::call("_&&_", vec![result(), predicate])?, result()),
        "exists" => {
            let condition = go_on(Expression::call("!_", vec![result()])?)?;
            (constant(false), condition, Expression::call("_||_", vec![result(), predicate])?, result())
        }
        _ => {
            let more = Expression::call("_+_", vec![result(), one.clone()])?;
            let step = Expression::call("_?_:_", vec![predicate, more, result()])?;
            (none, constant(true), step, Expression::call("_==_", vec![result(), one])?)
        }
    };
    fold(Fold { range, names, accumulator: RESULT.into(), initial, condition, step, result: end })
}

/// A walk over everything that begins with something empty.
fn collect(range: Expression, names: Names, initial: Expression, step: Expression) -> Expanded {
    let accumulator = RESULT.into();
    fold(Fold { range, names, accumulator, initial, condition: constant(true), step, result: result() })
}

fn fold(fold: Fold) -> Expanded {
    Expression::new(Kind::Fold(Box::new(fold)))
}

/// Takes a step only where the filter holds.
fn filtered(filter: Option<Expression>, step: Expression) -> Expanded {
    match filter {
        Some(filter) => Expression::call("_?_:_", vec![filter, step, result()]),
        None => Ok(step),
    }
}

fn transform_list(range: Expression, arguments: Vec<Expression>, has_one_name: bool) -> Expanded {
    let (names, mut rest) = names(arguments, if has_one_name { 1 } else { 2 })?;
    let transform = rest.pop().into_iter();
    let step = Expression::call("_+_", vec![result(), Expression::list(transform)?])?;
    collect(range, names, Expression::list([])?, filtered(rest.pop(), step)?)
}

fn filter(range: Expression, arguments: Vec<Expression>) -> Expanded {
    let element = arguments[0].clone();
    let (names, mut rest) = names(arguments, 1)?;
    let step = Expression::call("_+_", vec![result(), Expression::list([element])?])?;
    collect(range, names, Expression::list([])?, filtered(rest.pop(), step)?)
}

fn transform_map(range: Expression, arguments: Vec<Expression>, has_keys: bool) -> Expanded {
    let key = arguments[0].clone();
    let (names, mut rest) = names(arguments, 2)?;
    let transform = rest.pop();
    let inserted = [Some(result()), has_keys.then_some(key), transform].into_iter().flatten().collect();
    let step = Expression::call("cel.@mapInsert", inserted)?;
    collect(range, names, Expression::new(Kind::Map(Vec::new()))?, filtered(rest.pop(), step)?)
}

/// `name` stands for `value` in `body`: the walk over nothing whose result sees the collected value.
fn bind(name: Box<str>, value: Expression, body: Expression) -> Expanded {
    let step = Expression::name(&name);
    let names = [Some("#unused".into()), None];
    let (range, condition) = (Expression::list([])?, constant(false));
    fold(Fold { range, names, accumulator: name, initial: value, condition, step, result: body })
}

fn bind_macro(mut arguments: Vec<Expression>) -> Expanded {
    let body = arguments.pop();
    let value = arguments.pop();
    let name = simple_name(arguments.remove(0))?;
    match (value, body) {
        (Some(value), Some(body)) => bind(name, value, body),
        _ => Err(CompileError::Syntax("cel.bind() wants a name, a value and an expression".to_owned())),
    }
}

fn optional_map(target: Expression, mut arguments: Vec<Expression>, is_wrapped: bool) -> Expanded {
    let name = simple_name(arguments.remove(0))?;
    let value = Expression::member_call(target.clone(), "value", Vec::new())?;
    let bound = bind(name, value, arguments.remove(0))?;
    let optional =
        |function: &str, arguments| Expression::member_call(Expression::name("optional"), function, arguments);
    let present = if is_wrapped { optional("of", vec![bound])? } else { bound };
    let condition = Expression::member_call(target, "hasValue", Vec::new())?;
    Expression::call("_?_:_", vec![condition, present, optional("none", Vec::new())?])
}

fn sort_by(target: Expression, arguments: Vec<Expression>) -> Expanded {
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_)) {
        return Err(CompileError::Syntax("sortBy() wants a list".to_owned()));
    }
    let input = || Expression::name("@sortBy_input");
    let keys = transform_list(input(), arguments, true)?;
    let sorted = Expression::member_call(input(), "@sortByAssociatedKeys", vec![keys])?;
    bind("@sortBy_input".into(), target, sorted)
}
