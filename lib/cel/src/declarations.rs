//! The functions there are, as Kubernetes registers them for selectors of devices.

use std::{collections::HashMap, sync::LazyLock};

use super::{
    cost::Cost,
    types::{DURATION, TIMESTAMP, Type},
};

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) is_member: bool,
    /// Types of the arguments, with the target of a member first. `A` and `B` are the variables 0 and 1.
    pub(super) arguments: Vec<Type>,
    pub(super) result: Type,
    pub(super) cost: Cost,
}

/// All ways to call each function.
pub(super) static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for (name, overload) in signatures().filter_map(|(signature, cost)| read(signature, cost)) {
        functions.entry(name).or_default().push(overload);
    }
    functions
});

/// Signatures, separated by semicolons; members have their target in front of the name. Costs are those of one certain
/// overload; where several are possible, or [`Cost::by_function`] says otherwise, that counts.
const SIGNATURES: &[(&str, Cost)] = &[
    ("_?_:_(bool, A, A): A; !_(bool): bool; @not_strictly_false(bool): bool; dyn(A): dyn; type(A): type(A)", Cost::One),
    ("_==_(A, A): bool; _!=_(A, A): bool", Cost::Smaller),
    ("_+_(bytes, bytes): bytes", Cost::Both),
    ("_+_(double, double): double; _+_(int, int): int; _+_(list(A), list(A)): list(A)", Cost::One),
    ("_+_(string, string): string", Cost::Both),
    ("_+_(uint, uint): uint", Cost::One),
    ("_-_(double, double): double; _-_(int, int): int; _-_(uint, uint): uint", Cost::One),
    ("_*_(double, double): double; _*_(int, int): int; _*_(uint, uint): uint", Cost::One),
    ("_/_(double, double): double; _/_(int, int): int; _/_(uint, uint): uint", Cost::One),
    ("_%_(int, int): int; _%_(uint, uint): uint; -_(double): double; -_(int): int", Cost::One),
    ("_[_](list(A), int): A; _[_](map(A, B), A): B", Cost::One),
    ("_[_](optional(list(A)), int): optional(A); _[_](optional(map(A, B)), A): optional(B)", Cost::One),
    ("_[?_](list(A), int): optional(A); _[?_](optional(list(A)), int): optional(A)", Cost::One),
    ("_[?_](map(A, B), A): optional(B); _[?_](optional(map(A, B)), A): optional(B)", Cost::One),
    ("@in(A, list(A)): bool", Cost::SizeOfSecond),
    ("@in(A, map(A, B)): bool", Cost::One),
    ("size(bytes): int; size(list(A)): int; size(map(A, B)): int; size(string): int", Cost::One),
    ("bytes.size(): int; list(A).size(): int; map(A, B).size(): int; string.size(): int", Cost::One),
    ("bool(bool): bool; bool(string): bool; bytes(bytes): bytes", Cost::One),
    ("bytes(string): bytes; string(bytes): string", Cost::First),
    ("double(double): double; double(int): double; double(string): double; double(uint): double", Cost::One),
    ("int(int): int; int(double): int; int(string): int; int(uint): int", Cost::One),
    ("uint(uint): uint; uint(double): uint; uint(int): uint; uint(string): uint", Cost::One),
    ("string(string): string; string(bool): string; string(double): string; string(int): string", Cost::One),
    ("string(uint): string; string(net.IP): string; string(net.CIDR): string", Cost::One),
    ("string.contains(string): bool", Cost::Product),
    ("string.endsWith(string): bool; string.startsWith(string): bool", Cost::First),
    ("string.matches(string): bool", Cost::Regex),
    ("matches(string, string): bool", Cost::One),
    // Times.
    ("timestamp(timestamp): timestamp; timestamp(int): timestamp; timestamp(string): timestamp", Cost::One),
    ("duration(duration): duration; duration(int): duration; duration(string): duration", Cost::One),
    ("int(timestamp): int; int(duration): int; string(timestamp): string; string(duration): string", Cost::One),
    ("_+_(duration, duration): duration; _+_(duration, timestamp): timestamp", Cost::One),
    ("_+_(timestamp, duration): timestamp; _-_(duration, duration): duration", Cost::One),
    ("_-_(timestamp, duration): timestamp; _-_(timestamp, timestamp): duration", Cost::One),
    ("timestamp.getFullYear(): int; timestamp.getFullYear(string): int", Cost::One),
    ("timestamp.getMonth(): int; timestamp.getMonth(string): int", Cost::One),
    ("timestamp.getDayOfYear(): int; timestamp.getDayOfYear(string): int", Cost::One),
    ("timestamp.getDayOfMonth(): int; timestamp.getDayOfMonth(string): int", Cost::One),
    ("timestamp.getDate(): int; timestamp.getDate(string): int", Cost::One),
    ("timestamp.getDayOfWeek(): int; timestamp.getDayOfWeek(string): int", Cost::One),
    ("timestamp.getHours(): int; timestamp.getHours(string): int; duration.getHours(): int", Cost::One),
    ("timestamp.getMinutes(): int; timestamp.getMinutes(string): int; duration.getMinutes(): int", Cost::One),
    ("timestamp.getSeconds(): int; timestamp.getSeconds(string): int; duration.getSeconds(): int", Cost::One),
    ("timestamp.getMilliseconds(): int; timestamp.getMilliseconds(string): int", Cost::One),
    ("duration.getMilliseconds(): int", Cost::One),
    // Strings.
    ("string.format(list(dyn)): string", Cost::First),
    ("string.charAt(int): string; string.indexOf(string): int; string.indexOf(string, int): int", Cost::One),
    ("string.lastIndexOf(string): int; string.lastIndexOf(string, int): int; string.lowerAscii(): string", Cost::One),
    ("string.upperAscii(): string; string.trim(): string; string.replace(string, string): string", Cost::One),
    ("string.replace(string, string, int): string; string.split(string): list(string)", Cost::One),
    ("string.split(string, int): list(string); string.substring(int): string", Cost::One),
    ("string.substring(int, int): string; list(string).join(): string; list(string).join(string): string", Cost::One),
    ("strings.quote(string): string", Cost::First),
    ("string.find(string): string; string.findAll(string): list(string)", Cost::One),
    ("string.findAll(string, int): list(string)", Cost::One),
    // Lists of Kubernetes.
    ("list(int).isSorted(): bool; list(uint).isSorted(): bool; list(double).isSorted(): bool", Cost::One),
    ("list(bool).isSorted(): bool; list(string).isSorted(): bool; list(bytes).isSorted(): bool", Cost::One),
    ("list(int).sum(): int; list(uint).sum(): uint; list(double).sum(): double", Cost::One),
    ("list(int).max(): int; list(uint).max(): uint; list(double).max(): double", Cost::One),
    ("list(bool).max(): bool; list(string).max(): string; list(bytes).max(): bytes", Cost::One),
    ("list(int).min(): int; list(uint).min(): uint; list(double).min(): double", Cost::One),
    ("list(bool).min(): bool; list(string).min(): string; list(bytes).min(): bytes", Cost::One),
    ("list(duration).isSorted(): bool; list(timestamp).isSorted(): bool; list(duration).sum(): duration", Cost::One),
    ("list(duration).max(): duration; list(timestamp).max(): timestamp", Cost::One),
    ("list(duration).min(): duration; list(timestamp).min(): timestamp", Cost::One),
    ("list(A).indexOf(A): int; list(A).lastIndexOf(A): int", Cost::One),
    // Lists of the language's extensions.
    ("list(A).slice(int, int): list(A); list(A).reverse(): list(A)", Cost::NewList),
    ("list(list(A)).flatten(): list(A); list(dyn).flatten(int): list(dyn)", Cost::Flatten),
    (
        "list(int).sort(): list(int); list(uint).sort(): list(uint); list(double).sort(): list(double)",
        Cost::SelfCompare,
    ),
    ("list(bool).sort(): list(bool); list(string).sort(): list(string)", Cost::SelfCompare),
    ("list(bytes).sort(): list(bytes); list(A).distinct(): list(A)", Cost::SelfCompare),
    ("list(A).@sortByAssociatedKeys(list(int)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(uint)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(double)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(bool)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(string)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(bytes)): list(A)", Cost::KeysCompare),
    ("list(duration).sort(): list(duration); list(timestamp).sort(): list(timestamp)", Cost::SelfCompare),
    ("list(A).@sortByAssociatedKeys(list(duration)): list(A)", Cost::KeysCompare),
    ("list(A).@sortByAssociatedKeys(list(timestamp)): list(A)", Cost::KeysCompare),
    ("lists.range(int): list(int)", Cost::NewList),
    ("list(A).first(): optional(A); list(A).last(): optional(A)", Cost::One),
    ("sets.contains(list(A), list(A)): bool; sets.intersects(list(A), list(A)): bool", Cost::Sets(1)),
    ("sets.equivalent(list(A), list(A)): bool", Cost::Sets(2)),
    ("cel.@mapInsert(map(A, B), A, B): map(A, B); cel.@mapInsert(map(A, B), map(A, B)): map(A, B)", Cost::One),
    // Optional values.
    ("optional.of(A): optional(A); optional.ofNonZeroValue(A): optional(A); optional.none(): optional(A)", Cost::One),
    ("optional(A).value(): A; optional(A).hasValue(): bool", Cost::One),
    ("optional(A).or(optional(A)): optional(A); optional(A).orValue(A): A", Cost::Nothing),
    ("optional.unwrap(list(optional(A))): list(A); list(optional(A)).unwrapOpt(): list(A)", Cost::One),
    // Quantities.
    ("quantity(string): kubernetes.Quantity; isQuantity(string): bool; sign(kubernetes.Quantity): int", Cost::One),
    ("kubernetes.Quantity.isGreaterThan(kubernetes.Quantity): bool", Cost::One),
    ("kubernetes.Quantity.isLessThan(kubernetes.Quantity): bool", Cost::One),
    ("kubernetes.Quantity.compareTo(kubernetes.Quantity): int", Cost::One),
    ("kubernetes.Quantity.asApproximateFloat(): double; kubernetes.Quantity.asInteger(): int", Cost::One),
    ("kubernetes.Quantity.isInteger(): bool", Cost::One),
    ("kubernetes.Quantity.add(kubernetes.Quantity): kubernetes.Quantity", Cost::One),
    ("kubernetes.Quantity.add(int): kubernetes.Quantity", Cost::One),
    ("kubernetes.Quantity.sub(kubernetes.Quantity): kubernetes.Quantity", Cost::One),
    ("kubernetes.Quantity.sub(int): kubernetes.Quantity", Cost::One),
    // Versions.
    ("semver(string): kubernetes.Semver; semver(string, bool): kubernetes.Semver", Cost::One),
    ("isSemver(string): bool; isSemver(string, bool): bool", Cost::One),
    ("kubernetes.Semver.isGreaterThan(kubernetes.Semver): bool", Cost::One),
    ("kubernetes.Semver.isLessThan(kubernetes.Semver): bool", Cost::One),
    ("kubernetes.Semver.compareTo(kubernetes.Semver): int; kubernetes.Semver.major(): int", Cost::One),
    ("kubernetes.Semver.minor(): int; kubernetes.Semver.patch(): int", Cost::One),
    // Addresses.
    ("ip(string): net.IP", Cost::First),
    ("isIP(string): bool; ip.isCanonical(string): bool; net.IP.family(): int", Cost::One),
    ("net.IP.isUnspecified(): bool; net.IP.isLoopback(): bool; net.IP.isLinkLocalMulticast(): bool", Cost::One),
    ("net.IP.isLinkLocalUnicast(): bool; net.IP.isGlobalUnicast(): bool", Cost::One),
    ("cidr(string): net.CIDR; isCIDR(string): bool; net.CIDR.ip(): net.IP", Cost::One),
    ("net.CIDR.containsIP(string): bool", Cost::Within { is_network: false, is_read: true }),
    ("net.CIDR.containsIP(net.IP): bool", Cost::Within { is_network: false, is_read: false }),
    ("net.CIDR.containsCIDR(string): bool", Cost::Within { is_network: true, is_read: true }),
    ("net.CIDR.containsCIDR(net.CIDR): bool", Cost::Within { is_network: true, is_read: false }),
    ("net.CIDR.prefixLength(): int; net.CIDR.masked(): net.CIDR", Cost::One),
    // URLs.
    ("url(string): kubernetes.URL", Cost::First),
    ("isURL(string): bool; kubernetes.URL.getScheme(): string; kubernetes.URL.getHost(): string", Cost::One),
    ("kubernetes.URL.getHostname(): string; kubernetes.URL.getPort(): string", Cost::One),
    ("kubernetes.URL.getEscapedPath(): string; kubernetes.URL.getQuery(): map(string, list(string))", Cost::One),
    // Named formats.
    ("format.dns1123Label(): kubernetes.NamedFormat; format.dns1123Subdomain(): kubernetes.NamedFormat", Cost::One),
    ("format.dns1035Label(): kubernetes.NamedFormat; format.qualifiedName(): kubernetes.NamedFormat", Cost::One),
    ("format.dns1123LabelPrefix(): kubernetes.NamedFormat", Cost::One),
    ("format.dns1123SubdomainPrefix(): kubernetes.NamedFormat", Cost::One),
    ("format.dns1035LabelPrefix(): kubernetes.NamedFormat; format.labelValue(): kubernetes.NamedFormat", Cost::One),
    ("format.uri(): kubernetes.NamedFormat; format.uuid(): kubernetes.NamedFormat", Cost::One),
    ("format.byte(): kubernetes.NamedFormat; format.date(): kubernetes.NamedFormat", Cost::One),
    ("format.datetime(): kubernetes.NamedFormat", Cost::One),
    ("format.named(string): optional(kubernetes.NamedFormat)", Cost::One),
    ("kubernetes.NamedFormat.validate(string): optional(list(string))", Cost::Validation),
    // Who may do what. No selector has an authorizer to ask, but there are functions that would take one.
    ("Authorizer.path(string): PathCheck; Authorizer.group(string): GroupCheck", Cost::One),
    ("Authorizer.serviceAccount(string, string): Authorizer; GroupCheck.resource(string): ResourceCheck", Cost::One),
    ("ResourceCheck.subresource(string): ResourceCheck; ResourceCheck.namespace(string): ResourceCheck", Cost::One),
    ("ResourceCheck.name(string): ResourceCheck", Cost::One),
    ("PathCheck.check(string): Decision; ResourceCheck.check(string): Decision", Cost::Authorization),
    ("Decision.errored(): bool; Decision.error(): string; Decision.allowed(): bool", Cost::One),
    ("Decision.reason(): string", Cost::One),
    ("ResourceCheck.fieldSelector(string): ResourceCheck", Cost::Requirements),
    ("ResourceCheck.labelSelector(string): ResourceCheck", Cost::Requirements),
];

fn signatures() -> impl Iterator<Item = (&'static str, Cost)> {
    let all = SIGNATURES.iter().flat_map(|(all, cost)| all.split(';').map(|signature| (signature.trim(), *cost)));
    all.filter(|(signature, _)| !signature.is_empty())
}

/// Numbers can be compared with numbers of another type.
pub(super) const COMPARISONS: [&str; 4] = ["_<_", "_<=_", "_>_", "_>=_"];
const COMPARED: [(&str, &str, Cost); 14] = [
    ("bool", "bool", Cost::One),
    ("int", "int", Cost::One),
    ("int", "double", Cost::One),
    ("int", "uint", Cost::One),
    ("uint", "uint", Cost::One),
    ("uint", "double", Cost::One),
    ("uint", "int", Cost::One),
    ("double", "double", Cost::One),
    ("double", "int", Cost::One),
    ("double", "uint", Cost::One),
    ("string", "string", Cost::Smaller),
    ("bytes", "bytes", Cost::Smaller),
    ("timestamp", "timestamp", Cost::One),
    ("duration", "duration", Cost::One),
];

/// Overloads that all comparisons have.
pub(super) static COMPARISON: LazyLock<Vec<Overload>> = LazyLock::new(|| {
    let compared = |(one, two, cost): &(&'static str, &'static str, Cost)| {
        let arguments = [one, two].into_iter().filter_map(|text| read_type(text).map(|(ty, _)| ty)).collect();
        Overload { is_member: false, arguments, result: Type::Bool, cost: *cost }
    };
    COMPARED.iter().map(compared).collect()
});

/// All ways to call a function.
pub(super) fn overloads(name: &str, has_includes: bool) -> Option<&'static [Overload]> {
    static INCLUDES: LazyLock<Vec<Overload>> =
        LazyLock::new(|| read("dyn.includes(dyn): bool", Cost::One).into_iter().map(|(_, it)| it).collect());
    match name {
        "includes" if has_includes => Some(&INCLUDES),
        name if COMPARISONS.contains(&name) => Some(&COMPARISON),
        name => FUNCTIONS.get(name).map(Vec::as_slice),
    }
}

/// Reads `target.name(argument, …): result`.
fn read(signature: &'static str, cost: Cost) -> Option<(&'static str, Overload)> {
    // A target is a type; names of functions can contain points too, as in `optional.of`.
    let target = read_type(signature).filter(|(_, rest)| rest.starts_with('.'));
    let (target, rest) = target.map_or((None, signature), |(ty, rest)| (Some(ty), &rest[1..]));
    let (name, rest) = rest.split_once('(')?;
    let is_member = target.is_some();
    let mut arguments: Vec<Type> = target.into_iter().collect();
    let mut rest = rest;
    while let Some((argument, after)) = read_type(rest.trim_start_matches([',', ' '])) {
        arguments.push(argument);
        rest = after;
    }
    let (result, _) = read_type(rest.strip_prefix("): ")?)?;
    Some((name, Overload { is_member, arguments, result, cost }))
}

/// A type at the beginning of a text, and the text behind it.
fn read_type(text: &'static str) -> Option<(Type, &'static str)> {
    let end = text.find(['(', ')', ',', ' ', ';', ':']).unwrap_or(text.len());
    let word = &text[..end];
    let inside = |rest: &'static str| read_type(rest.strip_prefix('(')?);
    let named =
        NAMED.iter().find(|(name, _)| word == *name || word.strip_prefix(name).is_some_and(|it| it.starts_with('.')));
    if let Some((name, ty)) = named {
        return Some((ty.clone(), &text[name.len()..]));
    }
    match word {
        "list" | "optional" | "type" => {
            let (element, rest) = inside(&text[end..])?;
            let ty = match word {
                "list" => Type::list(element),
                "optional" => Type::optional(element),
                _ => Type::Meta(Some(element.into())),
            };
            Some((ty, rest.strip_prefix(')')?))
        }
        "map" => {
            let (key, rest) = inside(&text[end..])?;
            let (value, rest) = read_type(rest.strip_prefix(", ")?)?;
            Some((Type::map(key, value), rest.strip_prefix(')')?))
        }
        _ => None,
    }
}

const NAMED: [(&str, Type); 23] = [
    ("timestamp", TIMESTAMP),
    ("duration", DURATION),
    ("kubernetes.URL", Type::Struct("kubernetes.URL")),
    ("kubernetes.NamedFormat", Type::Struct("kubernetes.NamedFormat")),
    ("Authorizer", Type::Struct("kubernetes.authorization.Authorizer")),
    ("PathCheck", Type::Struct("kubernetes.authorization.PathCheck")),
    ("GroupCheck", Type::Struct("kubernetes.authorization.GroupCheck")),
    ("ResourceCheck", Type::Struct("kubernetes.authorization.ResourceCheck")),
    ("Decision", Type::Struct("kubernetes.authorization.Decision")),
    ("kubernetes.Quantity", Type::Struct("kubernetes.Quantity")),
    ("kubernetes.Semver", Type::Struct("kubernetes.Semver")),
    ("net.IP", Type::Opaque("net.IP", None)),
    ("net.CIDR", Type::Opaque("net.CIDR", None)),
    ("A", Type::Variable(0)),
    ("B", Type::Variable(1)),
    ("dyn", Type::Dyn),
    ("bool", Type::Bool),
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("double", Type::Double),
    ("string", Type::Text),
    ("bytes", Type::Bytes),
    ("null_type", Type::Null),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_can_be_read_to_its_end() {
        for (signature, cost) in signatures() {
            assert!(read(signature, cost).is_some(), "{signature}");
            let (_, result) = signature.rsplit_once("): ").unwrap();
            assert_eq!(read_type(result).map(|(_, rest)| rest), Some(""), "{signature}");
        }
        for (one, two, _) in COMPARED {
            assert!(read_type(one).is_some() && read_type(two).is_some(), "{one} and {two}");
        }
    }

    #[test]
    fn a_signature_with_a_word_that_is_no_type_is_none() {
        for signature in ["size(strin): int", "size(string): in", "size(list(A): int", "size string: int"] {
            assert!(read(signature, Cost::One).is_none(), "{signature}");
        }
    }
}
