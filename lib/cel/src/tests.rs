//! What selectors answer, and which of them mean nothing.

use std::collections::BTreeSet;

use hostler_api::{
    ExactQuantity,
    resource::{DeviceAttribute, DeviceCapacity, SliceQuantity, SortedMap},
};
use proptest::prelude::*;

use super::*;

const OPTIONS: CelOptions = CelOptions { list_attributes: true, includes: true, old_words: false };

fn compiled(text: &str) -> Selector {
    Selector::compile(text, &OPTIONS).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    Selector::compile(text, &OPTIONS).map(|_| ()).unwrap_err().to_string()
}

/// What a device of `gpu.example.com` has.
struct Device {
    attributes: SortedMap<DeviceAttribute>,
    capacity: SortedMap<DeviceCapacity>,
}

impl Device {
    fn with(attributes: &[(&str, DeviceAttribute)], capacity: &[(&str, &str)]) -> Self {
        let amount = |text: &str| SliceQuantity::Exact(text.parse::<ExactQuantity>().unwrap());
        let capacity = capacity
            .iter()
            .map(|(name, value)| (*name, DeviceCapacity { value: amount(value), request_policy: None }))
            .collect();
        Self { attributes: attributes.iter().map(|(name, value)| (*name, value.clone())).collect(), capacity }
    }

    fn usual() -> Self {
        let model = DeviceAttribute::String("a100".into());
        let lanes = DeviceAttribute::Ints([8, 16].into());
        let named = [("model", model), ("other.example.com/lanes", lanes)];
        Self::with(&named, &[("memory", "80Gi")])
    }

    fn judged(&self, text: &str) -> Result<bool, EvaluationError> {
        let (attributes, capacity) = (&self.attributes, &self.capacity);
        let driver = "gpu.example.com";
        compiled(text).matches(&DeviceFacts { driver, attributes, capacity, allow_multiple_allocations: false })
    }
}

#[test]
fn names_without_a_domain_belong_to_the_driver() {
    let device = Device::usual();
    assert_eq!(device.judged(r#"device.attributes["gpu.example.com"].model == "a100""#), Ok(true));
    assert_eq!(device.judged(r#"has(device.attributes["other.example.com"].model)"#), Ok(false));
    assert_eq!(device.judged(r#"device.attributes["other.example.com"].lanes.includes(8)"#), Ok(true));
    let full = DeviceAttribute::String("full".into());
    let both = [("gpu.example.com/x", full), ("x", DeviceAttribute::Bool(true))];
    let device = Device::with(&both, &[]);
    assert_eq!(device.judged(r#"device.attributes["gpu.example.com"].x == "full""#), Ok(true));
}

#[test]
fn errors_name_what_is_wrong() {
    for (text, message) in [
        ("device.nope == 1", "device has no field nope"),
        ("nope == 1", "unknown name nope; a selector sees only device"),
        ("device.driver.nope()", "unknown function nope"),
        ("device.driver + 1 == 2", "_+_ takes no (string, int)"),
        ("[1, 'a'] == []", "expected int, found string"),
        ("device.driver", "it evaluates to string, not to bool"),
        ("device.driver == 'a", "a text is not closed"),
        ("1 == ", "the expression ends too early"),
        ("'a'.matches('(')", "invalid regular expression: ("),
        ("int('x') == 1", "no whole number of 64 bits"),
        ("duration('1d') == duration('1s')", "no duration of less than 292 years"),
        ("format.nope().validate('a').hasValue()", "unknown name format; a selector sees only device"),
        ("'%d'.format(['a']) == ''", "the clause Decimal of format() takes no (string)"),
        ("'a'.matches('\\\\1')", r"invalid regular expression: escape \1"),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
    let long = format!("'{}' == ''", "a".repeat(10_300));
    assert_eq!(refused(&long), "it has 10308 bytes, more than 10240");
}

#[test]
fn failures_name_what_is_wrong() {
    let device = Device::usual();
    for (text, message) in [
        (r#"device.attributes["gpu.example.com"].nope == 1"#, "no such key: nope"),
        (r#"device.attributes["gpu.example.com"].model > 1"#, "_>_ takes no (string, int)"),
        (r#"device.attributes["gpu.example.com"].model"#, "it evaluated to string, not to bool"),
        (r#"device.attributes["other.example.com"].lanes[2] == 1"#, "index Some(2) is out of bounds of a list of 2"),
        ("lists.range(300000).all(x, x >= 0)", "it costs more than 1,000,000 units"),
        ("quantity('1e40') == quantity('1')", "unsupported: the quantity 1e40"),
    ] {
        assert_eq!(device.judged(text).unwrap_err().to_string(), message, "{text}");
    }
    let unreadable = Device::with(&[("broken", DeviceAttribute::Version("1.0".into()))], &[]);
    assert_eq!(unreadable.judged("true").unwrap_err().to_string(), "attribute broken has no supported value");
}

#[test]
fn types_of_kubernetes_on_the_left_are_compared_with_their_like_only() {
    let device = Device::usual();
    for (text, expected) in [
        ("dyn(semver('1.2.3')) == dyn('1.2.3')", None),
        ("dyn(quantity('1')) == dyn(1)", None),
        ("dyn(semver('1.2.3')) in ['1.2.3']", None),
        ("dyn('1.2.3') == dyn(semver('1.2.3'))", Some(false)),
        ("dyn(semver('1.2.3')) != dyn('1.2.3')", Some(true)),
        ("dyn(semver('1.2.3')) == null", Some(false)),
    ] {
        assert_eq!(device.judged(text).ok(), expected, "{text}");
    }
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    let nested = |open: &str, inside: &str, close: &str| {
        [5, 30, 119, 120, 500, 2000].map(|depth| {
            let text = format!("{}{inside}{}", open.repeat(depth), close.repeat(depth));
            Selector::compile(&text, &OPTIONS).map(|selector| {
                let device = Device::usual();
                let (attributes, capacity) = (&device.attributes, &device.capacity);
                let facts = DeviceFacts { driver: "", attributes, capacity, allow_multiple_allocations: false };
                drop(selector.matches(&facts));
            })
        })
    };
    for (open, inside, close) in [
        ("(", "true", ")"),
        ("[", "", "]"),
        ("!(", "true", ")"),
        ("-(", "1", ")"),
        ("[1].exists(x, ", "true", ")"),
        ("[1].map(x, ", "x", ")"),
        ("cel.bind(x, 1, ", "true", ")"),
        ("true ? true : ", "true", ""),
        ("dyn(", "true", ")"),
        ("1 + ", "1", ""),
        ("optional.of(", "1", ")"),
        ("{1: ", "1", "}"),
        ("true && (", "true", ")"),
        ("", "device", ".a"),
        ("", "device", "[0]"),
        ("", "1", ".optMap(x, x)"),
    ] {
        let outcomes = nested(open, inside, close);
        assert!(!matches!(outcomes[0], Err(CompileError::Unsupported(_))), "{open}");
        assert!(outcomes[5].is_err(), "{open}");
    }
}

#[test]
fn what_can_grow_without_cost_is_refused() {
    let device = Device::usual();
    let doubling = |from: &str, each: &str, last: &str| {
        let mut text = last.to_owned();
        for step in (0..60).rev() {
            text = format!("cel.bind(v{}, {}, {text})", step + 1, each.replace("v", &format!("v{step}")));
        }
        format!("cel.bind(v0, {from}, {text})")
    };
    for text in [
        doubling("[1, 2]", "v + v", "v60.size() > 0"),
        doubling("[1, 2]", "[v, v]", "v60 == v60"),
        doubling("'ab'", "v + v", "v60.size() > 0"),
        doubling("'abcdefgh'", "v.replace('', v)", "v60.size() > 0"),
        doubling("{1: 1}", "{v: v}", "v60 == v60"),
        "lists.range(40000).map(x, 'aaaaaaaaaaaaaaaaaaaaaaa'.replace('', 'bbbbbbbbbbbbbbbbbbbbbb')).size() > 0"
            .to_owned(),
    ] {
        let Ok(selector) = Selector::compile(&text, &OPTIONS) else { continue };
        let (attributes, capacity) = (&device.attributes, &device.capacity);
        let facts = DeviceFacts { driver: "", attributes, capacity, allow_multiple_allocations: false };
        let answer = selector.matches(&facts);
        let is_bounded = matches!(answer, Err(EvaluationError::Unsupported(_) | EvaluationError::CostLimit));
        assert!(is_bounded, "{answer:?} {text:.80}");
    }
}

#[test]
fn references_are_what_an_answer_can_depend_on() {
    let names = |text: &str| -> BTreeSet<String> {
        let references = compiled(text).references();
        let names = references.names.iter().map(|(property, domain, id)| format!("{property:?} {domain}/{id}"));
        let domains = references.domains.iter().map(|(property, domain)| format!("{property:?} {domain}/*"));
        let others =
            [(references.driver, "driver"), (references.allow_multiple_allocations, "shared"), (references.all, "all")];
        let others = others.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name.to_owned());
        names.chain(domains).chain(others).collect()
    };
    for (text, expected) in [
        ("true", &[][..]),
        ("device.driver == 'a'", &["driver"]),
        ("device.allowMultipleAllocations", &["shared"]),
        ("device.attributes['a'].b == 1 && has(device.capacity['a'].c)", &["Attribute a/b", "Capacity a/c"]),
        ("device.attributes['a'].?b.orValue(true)", &["Attribute a/b"]),
        ("device.attributes['a'][device.driver] == 1", &["Attribute a/*", "driver"]),
        ("'b' in device.attributes['a']", &["Attribute a/*"]),
        ("cel.bind(a, device.attributes['a'], a.b == 1 || has(a.c))", &["Attribute a/b", "Attribute a/c"]),
        ("cel.bind(a, device.attributes['a'], a.all(k, k == ''))", &["Attribute a/*"]),
        ("device.attributes.all(d, d == '')", &["all"]),
        ("cel.bind(d, device, d.driver == '')", &["all"]),
        ("[1, 2].exists(x, x == device.attributes['a'].b)", &["Attribute a/b"]),
        (
            "device.attributes['a'].b ? device.capacity['c'].d == quantity('1') : false",
            &["Attribute a/b", "Capacity c/d"],
        ),
    ] {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(text), expected, "{text}");
    }
}

const LEAVES: &str = "true|1|-1|2u|1.5|'a'|b'a'|null|[]|[1, 2]|['a']|{}|{'a': 1}|x|device|device.driver|\
    device.attributes|device.attributes['d'].a|device.capacity['d'].c|quantity('1Gi')|semver('1.2.3')|optional.none()|\
    optional.of(1)|ip('::1')|cidr('10.0.0.0/8')|int|dyn(1)|lists.range(5)|9223372036854775807|'^a+$'";
const OPERATORS: &str = "+ - * / % < <= > >= == != && || in";
const MEMBERS: &str = "size contains matches find findAll split join replace substring charAt indexOf lastIndexOf \
    compareTo isGreaterThan add sub asInteger major sum max isSorted sort distinct slice flatten reverse first last \
    includes value hasValue or orValue containsIP masked trim unwrapOpt";
const MACROS: &str = "all exists exists_one map filter sortBy optMap";

fn one_of(words: &'static str, separator: char) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(words.split(separator).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>())
}

/// Expressions of pieces that fit together now and then, so that more than errors of syntax are tried.
fn expressions() -> impl Strategy<Value = String> {
    one_of(LEAVES, '|').prop_recursive(5, 40, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (inner.clone(), one_of(OPERATORS, ' '), inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), one_of(MEMBERS, ' '), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(target, name, arguments)| format!("{target}.{name}({})", arguments.join(", "))),
            (inner.clone(), one_of(MACROS, ' '), inner.clone())
                .prop_map(|(range, name, body)| format!("{range}.{name}(x, {body})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            pair.clone().prop_map(|(value, body)| format!("cel.bind(x, {value}, {body})")),
            pair.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            pair.clone().prop_map(|(a, b)| format!("{a}[?{b}]")),
            pair.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
            pair.prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            inner.clone().prop_map(|a| format!("has({a}.a)")),
            inner.clone().prop_map(|a| format!("{a}.?a")),
            inner.prop_map(|a| format!("dyn({a})")),
        ]
    })
}

/// Compiles and evaluates, and says whether the limit was kept.
fn is_kept(text: &str) -> bool {
    let device = Device::usual();
    let (attributes, capacity) = (&device.attributes, &device.capacity);
    let facts = DeviceFacts { driver: "d", attributes, capacity, allow_multiple_allocations: true };
    Selector::compile(text, &OPTIONS).is_ok_and(|selector| match selector.matches_at_cost(&facts) {
        (Err(EvaluationError::CostLimit), _) => true,
        (_, cost) => cost <= 1_000_000,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        is_kept(&text);
    }

    #[test]
    fn no_text_of_the_languages_signs_panics(text in "[a-c0-9.,?!&|=<>+*/%(){}\\[\\]\"'\\\\ :urbx-]{0,60}") {
        is_kept(&text);
    }

    #[test]
    fn no_expression_panics_or_costs_more_than_the_limit(text in expressions()) {
        let is_compiled = Selector::compile(&text, &OPTIONS).is_ok();
        prop_assert_eq!(is_kept(&text), is_compiled);
        let equal = format!("dyn({text}) == dyn(1)");
        let is_compiled = Selector::compile(&equal, &OPTIONS).is_ok();
        prop_assert_eq!(is_kept(&equal), is_compiled);
    }
}
