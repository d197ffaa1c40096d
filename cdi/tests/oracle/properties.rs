//! Properties of every spec, against the oracle where it has a say.

use std::fs;

use hostler_cdi::{CdiSpec, ContainerEdits, ProblemSeverity, SpecDir, WriteOutcome, minimum_version, read_spec};
use proptest::prelude::*;

use crate::{
    generate::{Faults, any_spec, edits, valid_spec},
    injection::{all_edits, assert_visible, qualified_names},
    oracle_injects, oracle_reads,
};

proptest! {
    #[test]
    fn valid_specs_are_written_accepted_and_injected(spec in valid_spec()) {
        prop_assert_eq!(spec.validate(), Ok(()));
        let root = tempfile::TempDir::new().unwrap();
        let dir = SpecDir::new(root.path());
        prop_assert_eq!(dir.write("spec", &spec).unwrap(), WriteOutcome::Replaced);
        prop_assert_eq!(dir.write("spec", &spec).unwrap(), WriteOutcome::Unchanged);
        prop_assert_eq!(&read_spec(&dir.file("spec").unwrap()).unwrap(), &spec);

        let oci = oracle_injects(root.path(), qualified_names(&spec)).unwrap();
        assert_visible(&all_edits(&spec), &oci);
    }

    #[test]
    fn exactly_what_the_oracle_refuses_is_refused(spec in any_spec()) {
        let root = tempfile::TempDir::new().unwrap();
        let path = root.path().join("spec.json");
        fs::write(&path, spec.to_json().unwrap()).unwrap();
        let refused: Vec<_> = spec.validate().err().unwrap_or_default();
        let refused: Vec<_> = refused.into_iter().filter(|problem| problem.severity == ProblemSeverity::Refused).collect();
        let oracle = oracle_reads(&path);
        prop_assert_eq!(refused.is_empty(), oracle.is_ok(), "ours {:?}, oracle {:?}", refused, oracle);
    }

    #[test]
    fn written_json_means_the_same_in_both_readers(spec in any_spec()) {
        let json = spec.to_json().unwrap();
        prop_assert_eq!(CdiSpec::from_json(&json), Ok(spec.clone()));
        prop_assert_eq!(CdiSpec::from_yaml(&json), Ok(spec));
    }

    #[test]
    fn more_content_never_needs_a_lower_version(spec in any_spec(), extra in edits(Faults::With)) {
        let mut more = spec.clone();
        add(&mut more.container_edits, &extra);
        prop_assert!(minimum_version(&more) >= minimum_version(&spec));
        let before = minimum_version(&more);
        for device in &mut more.devices {
            add(&mut device.container_edits, &extra);
            device.annotations.insert("a".to_owned(), String::new());
        }
        prop_assert!(minimum_version(&more) >= before);
        let before = minimum_version(&more);
        more.devices.extend(spec.devices);
        prop_assert!(minimum_version(&more) >= before);
    }

    #[test]
    fn a_declared_minimum_is_never_too_low(spec in any_spec()) {
        let spec = spec.with_minimum_version();
        let problems = spec.validate().err().unwrap_or_default();
        prop_assert!(problems.iter().all(|problem| problem.field != "cdiVersion"), "{:?}", problems);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
        let _ = CdiSpec::from_json(&bytes).map(|spec| spec.validate());
        let _ = CdiSpec::from_yaml(&bytes).map(|spec| spec.validate());
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        spec in any_spec(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = spec.to_json().unwrap();
        for (index, byte) in &damage {
            let index = index.index(bytes.len());
            bytes[index] = *byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            let _ = CdiSpec::from_json(bytes).map(|spec| spec.validate());
            let _ = CdiSpec::from_yaml(bytes).map(|spec| spec.validate());
        }
    }
}

/// Appends, but keeps an RDT class that is there: of two the later one counts, so that one would take its fields away.
fn add(edits: &mut ContainerEdits, extra: &ContainerEdits) {
    let rdt = edits.intel_rdt.take();
    edits.append(extra);
    edits.intel_rdt = rdt.or_else(|| edits.intel_rdt.take());
}
