//! How claims are named on the command line: `NAMESPACE/NAME`, `NAME` beside `--namespace`, or a UID.

use super::{CliFailure, client::segment};

const DEFAULT_NAMESPACE: &str = "default";

/// The option that says in which namespace a claim without one is looked for.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct NamespaceArgs {
    /// Namespace of claims that are named without one [default: default]
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
}

/// A claim as it is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NamedClaim {
    /// Namespace of a name.
    pub(super) namespace: String,
    /// Name or UID.
    pub(super) name: String,
}

impl NamedClaim {
    /// Reads what was written; the namespace may be said once.
    pub(super) fn new(text: &str, args: &NamespaceArgs) -> Result<Self, CliFailure> {
        let (said, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
        if name.is_empty() || name.contains('/') || said == Some("") {
            return Err(CliFailure::Usage(format!("{text:?} names no claim: write NAMESPACE/NAME, NAME or UID")));
        }
        let namespace = match (said, args.namespace.as_deref()) {
            (Some(said), Some(option)) if said != option => {
                return Err(CliFailure::Usage(format!("{text} is in namespace {said}, and --namespace says {option}")));
            }
            (said, option) => said.or(option).unwrap_or(DEFAULT_NAMESPACE),
        };
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The claim's own resource, or one below it (`/prepare`).
    pub(super) fn path(&self, below: &str) -> String {
        format!("/v1/claims/{}{below}?namespace={}", segment(&self.name), segment(&self.namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, option: Option<&str>) -> Result<String, String> {
        let args = NamespaceArgs { namespace: option.map(str::to_owned) };
        let name = NamedClaim::new(text, &args).map_err(|failure| failure.to_string())?;
        Ok(format!("{}/{}", name.namespace, name.name))
    }

    #[test]
    fn a_claim_is_named_with_its_namespace_or_beside_it() {
        assert_eq!(name("train", None).unwrap(), "default/train");
        assert_eq!(name("train", Some("ml")).unwrap(), "ml/train");
        assert_eq!(name("ml/train", None).unwrap(), "ml/train");
        assert_eq!(name("ml/train", Some("ml")).unwrap(), "ml/train");
    }

    #[test]
    fn two_namespaces_for_one_claim_and_names_that_are_none_are_refused() {
        let error = name("ml/train", Some("web")).unwrap_err();
        assert_eq!(error, "ml/train is in namespace ml, and --namespace says web");
        for text in ["", "/train", "ml/", "ml/a/b"] {
            assert!(name(text, None).unwrap_err().contains("write NAMESPACE/NAME, NAME or UID"), "{text}");
        }
    }
}
