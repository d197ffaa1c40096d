//! Sentences about the devices that simple selectors refuse, so that people need not read the expression.

use super::{
    ast::{Expression, Kind},
    value::Value,
};

/// Describes the devices that the selector refuses, in words to stand behind `with`. `None`: only the expression
/// itself says it.
///
/// One comparison of one property is understood; a device without that property ends the evaluation, and is no refusal.
pub(super) fn refusal(selector: &Expression) -> Option<String> {
    let (operator, [left, right]) = call(selector)? else { return None };
    if let (Some((target, "compareTo", [limit])), Some(0)) = (member_call(left), int(right)) {
        return amounts(operator, capacity(target)?, quantity(limit)?);
    }
    match operator {
        "_==_" => Some(format!("another {} than {}", attribute(left)?, constant(right)?)),
        "_!=_" => Some(format!("{} {}", attribute(left)?, constant(right)?)),
        _ => None,
    }
}

fn amounts(operator: &str, name: &str, limit: &str) -> Option<String> {
    let relation = match operator {
        "_>=_" => "less than",
        "_>_" => "no more than",
        "_<=_" => "more than",
        "_<_" => "no less than",
        "_==_" => "another amount than",
        _ => return None,
    };
    Some(format!("{relation} {limit} of {name}"))
}

/// The name of `device.capacity["domain"].name`.
fn capacity(expression: &Expression) -> Option<&str> {
    property(expression, "device.capacity")
}

fn attribute(expression: &Expression) -> Option<&str> {
    property(expression, "device.attributes")
}

fn property<'e>(expression: &'e Expression, of: &str) -> Option<&'e str> {
    let Kind::Select { operand, field, is_test: false } = &expression.kind else { return None };
    match call(operand)? {
        ("_[_]", [map, domain]) if map.dotted()? == of && text(domain).is_some() => Some(field),
        _ => None,
    }
}

fn call(expression: &Expression) -> Option<(&str, &[Expression])> {
    match &expression.kind {
        Kind::Call { function, target: None, arguments } => Some((function, arguments)),
        _ => None,
    }
}

fn member_call(expression: &Expression) -> Option<(&Expression, &str, &[Expression])> {
    match &expression.kind {
        Kind::Call { function, target: Some(target), arguments } => Some((target, function, arguments)),
        _ => None,
    }
}

fn quantity(expression: &Expression) -> Option<&str> {
    match call(expression)? {
        ("quantity", [Expression { kind: Kind::Literal(Value::Text(text)), .. }]) => Some(text),
        _ => None,
    }
}

fn text(expression: &Expression) -> Option<String> {
    match &expression.kind {
        Kind::Literal(Value::Text(text)) => Some(format!("{:?}", &**text)),
        _ => None,
    }
}

fn constant(expression: &Expression) -> Option<String> {
    text(expression).or_else(|| int(expression).map(|value| value.to_string()))
}

fn int(expression: &Expression) -> Option<i64> {
    match expression.kind {
        Kind::Literal(Value::Int(value)) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(selector: &str) -> Option<String> {
        refusal(&super::super::parser::parse(selector).unwrap())
    }

    #[test]
    fn one_comparison_of_one_property_has_a_sentence() {
        let memory = |operator: &str| {
            words(&format!(r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("64Gi")) {operator} 0"#))
        };
        assert_eq!(memory(">=").unwrap(), "less than 64Gi of memory");
        assert_eq!(memory(">").unwrap(), "no more than 64Gi of memory");
        assert_eq!(memory("<").unwrap(), "no less than 64Gi of memory");
        assert_eq!(words(r#"device.attributes["d"].model == "h100""#).unwrap(), r#"another model than "h100""#);
        assert_eq!(words(r#"device.attributes["d"].model != "h100""#).unwrap(), r#"model "h100""#);
        assert_eq!(words(r#"device.attributes["d"].numaNode == 1"#).unwrap(), "another numaNode than 1");
    }

    #[test]
    fn whatever_else_a_selector_says_is_left_to_itself() {
        for selector in [
            "false",
            r#"device.driver == "d" && device.capacity["d"].memory.compareTo(quantity("1")) >= 0"#,
            r#"device.capacity["d"].memory.compareTo(quantity("1")) >= 1"#,
            r#"device.capacity["d"].memory.compareTo(device.capacity["d"].other) >= 0"#,
            r#"device.attributes["d"].model in ["a", "b"]"#,
        ] {
            assert_eq!(words(selector), None, "{selector}");
        }
    }
}
