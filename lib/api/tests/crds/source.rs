//! Types as they are written down: their fields under the names that they have on the wire, and what is said of them.

use std::{collections::BTreeMap, fs, path::PathBuf};

use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// Every type of some files, by name.
#[derive(Debug)]
pub(crate) struct Types(BTreeMap<String, RustType>);

#[derive(Debug)]
pub(crate) enum RustType {
    Struct(Vec<Field>),
    /// It is written as another type.
    Alias(String),
    /// The values that it can have.
    Enum(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) docs: String,
    pub(crate) shape: Shape,
    /// Whether the fields of its type stand in its place.
    pub(crate) is_flattened: bool,
    /// Whether it is written always.
    pub(crate) is_required: bool,
}

/// What a field is.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Named(String),
    List(Box<Shape>),
    /// By text.
    Map(Box<Shape>),
}

impl Types {
    pub(crate) fn read(paths: impl Iterator<Item = PathBuf>) -> Self {
        let items = paths.flat_map(|path| syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items);
        Self(items.filter_map(named_type).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RustType> {
        self.0.get(name)
    }
}

fn named_type(item: Item) -> Option<(String, RustType)> {
    match item {
        Item::Struct(item) => {
            let Fields::Named(fields) = &item.fields else { return None };
            let written = serde_words(&item.attrs).find_map(|word| quoted(&word, "into"));
            if let Some(written) = written {
                return Some((item.ident.to_string(), RustType::Alias(written)));
            }
            let is_camel = serde_words(&item.attrs).any(|word| word.starts_with("rename_all=\"camelCase\""));
            let fields = fields.named.iter().map(|it| field(it, is_camel));
            Some((item.ident.to_string(), RustType::Struct(fields.collect())))
        }
        Item::Enum(item) => {
            let values = item.variants.iter().map(|variant| variant.ident.to_string());
            Some((item.ident.to_string(), RustType::Enum(values.collect())))
        }
        _ => None,
    }
}

fn field(field: &syn::Field, is_camel: bool) -> Field {
    let own = field.ident.as_ref().unwrap().to_string();
    let words: Vec<String> = serde_words(&field.attrs).collect();
    let renamed = words.iter().find_map(|word| quoted(word, "rename"));
    let (shape, is_optional) = shape(&field.ty);
    Field {
        name: renamed.unwrap_or_else(|| if is_camel { camel(&own) } else { own }),
        docs: docs(&field.attrs),
        shape,
        is_flattened: words.iter().any(|word| word == "flatten"),
        is_required: !is_optional && !words.iter().any(|word| word.starts_with("skip_serializing_if")),
    }
}

/// What stands behind `key=`.
fn quoted(word: &str, key: &str) -> Option<String> {
    Some(word.strip_prefix(key)?.strip_prefix("=\"")?.trim_end_matches('"').to_owned())
}

/// The parts of all `#[serde(…)]`, without spaces.
fn serde_words(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    let lists = attributes.iter().filter(|it| it.path().is_ident("serde"));
    lists.flat_map(|it| {
        let text = match &it.meta {
            Meta::List(list) => list.tokens.to_string().replace(' ', ""),
            _ => String::new(),
        };
        text.split(',').map(str::to_owned).collect::<Vec<_>>()
    })
}

fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|it| it.path().is_ident("doc")).filter_map(|it| match &it.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// The shape behind an `Option`, if it is one, and whether it is.
fn shape(ty: &Type) -> (Shape, bool) {
    let Type::Path(path) = ty else { panic!("a field is neither a name nor made of names") };
    let last = path.path.segments.last().unwrap();
    let inner = || {
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { panic!("{} of what?", last.ident) };
        let Some(GenericArgument::Type(inner)) = arguments.args.last() else { panic!("{} of what?", last.ident) };
        shape(inner).0
    };
    match last.ident.to_string().as_str() {
        "Option" => (inner(), true),
        "Vec" => (Shape::List(Box::new(inner())), false),
        "BTreeMap" | "SortedMap" => (Shape::Map(Box::new(inner())), false),
        name => (Shape::Named(name.to_owned()), false),
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        let (head, tail) = word.split_at(1);
        all + &head.to_uppercase() + tail
    })
}
