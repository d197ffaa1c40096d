//! What is read of texts, and what is said of what is wrong with them.

use super::*;

fn read(text: &str) -> (Manifests, Vec<String>) {
    let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
    let input = InputText { name: "x.yaml".to_owned(), text: text.to_owned() };
    manifests.read(&input, InputLayer::Files, &mut problems);
    (manifests, problems.iter().map(ToString::to_string).collect())
}

fn nodes(manifests: &Manifests) -> Vec<&str> {
    manifests.facts.node_names().collect()
}

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\n";

#[test]
fn a_broken_document_hides_no_other() {
    let text = format!("{}---\nkind: [\n---\n{}", NODE.replace("NAME", "a"), NODE.replace("NAME", "b"));
    let (manifests, problems) = read(&text);
    assert_eq!(nodes(&manifests), ["a", "b"]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("x.yaml: document 2, line "), "{problems:?}");
    assert!(problems[0].contains("it is not valid YAML"), "{problems:?}");
}

#[test]
fn a_wrong_field_is_named_with_its_document_object_and_line() {
    let text = "---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    \
                namespace: ml\n  spec:\n    containers:\n    - name: c\n      ports:\n      - hostPort: many\n\
                - apiVersion: v1\n  kind: Node\n  metadata: {name: n}\n";
    let (manifests, problems) = read(text);
    assert_eq!(nodes(&manifests), ["n"]);
    let place = "x.yaml: document 1 (Pod ml/a), line 14: items[0].spec.containers[0].ports[0].hostPort: ";
    assert!(problems.len() == 1 && problems[0].starts_with(place), "{problems:?}");
}

#[test]
fn a_broken_item_of_a_list_hides_no_other() {
    let node = |name: &str| format!("- apiVersion: v1\n  kind: Node\n  metadata: {{name: {name}}}\n");
    let text = format!("apiVersion: v1\nitems:\n{}{}{}{}kind: List\n", node("a"), node("["), node("b"), node("[]"));
    let (manifests, problems) = read(&text);
    assert_eq!(nodes(&manifests), ["a", "b"]);
    assert!(problems[0].starts_with("x.yaml: document 1, line 8: items[1]: it is not valid YAML"), "{problems:?}");
    assert!(problems[1].starts_with("x.yaml: document 1, line 14: items[3].metadata.name: "), "{problems:?}");
    let own = "apiVersion: v1\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\nkind: NodeList\n";
    assert_eq!(nodes(&read(own).0), ["a", "b"]);
}

#[test]
fn json_is_read_with_its_lines_and_goes_on_behind_what_is_broken() {
    let node = |name: &str| {
        format!("{{\n  \"apiVersion\": \"v1\", \"kind\": \"Node\",\n  \"metadata\": {{\"name\": {name}}}\n}}\n")
    };
    let (manifests, problems) = read(&format!("{}{}{}{}", node("\"a\""), node("7"), node("oops"), node("\"b\"")));
    assert_eq!(nodes(&manifests), ["a", "b"]);
    assert!(
        problems[0].starts_with("x.yaml: document 2, line 7: metadata.name: invalid type: integer `7`"),
        "{problems:?}"
    );
    assert!(problems[1].starts_with("x.yaml: document 3, line 11: it is not valid JSON: "), "{problems:?}");
    assert_eq!(problems.len(), 2);
}

#[test]
fn lists_of_the_api_say_once_what_their_items_are() {
    let text = r#"{"kind":"ResourceClaimList","apiVersion":"resource.k8s.io/v1","metadata":{},"items":[
        {"metadata":{"name":"a","namespace":"ml"},"spec":{"devices":{}}}, {"metadata":{"name":"a"},"spec":{}}]}"#;
    let (manifests, problems) = read(text);
    assert_eq!(problems, Vec::<String>::new());
    assert!(manifests.claims.keys().map(ToString::to_string).eq(["default/a", "ml/a"]));
}

#[test]
fn short_yaml_that_looks_like_json_is_read() {
    let (manifests, problems) = read("{apiVersion: v1, kind: Node, metadata: {name: n}}\n");
    assert_eq!(nodes(&manifests), ["n"], "{problems:?}");
}

#[test]
fn what_is_there_twice_is_told_and_what_means_nothing_is_counted() {
    let text =
        format!("{0}---\n{0}---\napiVersion: v1\nkind: Service\nmetadata: {{name: s}}\n", NODE.replace("NAME", "a"));
    let (manifests, problems) = read(&text);
    let twice = "x.yaml: document 2 (Node a), line 7: metadata.name: there is one of that name already, in x.yaml, \
                 document 1; remove one of the two";
    assert_eq!(problems, [twice]);
    assert_eq!(manifests.unread, BTreeMap::from([("Service".to_owned(), 1)]));
}

#[test]
fn versions_kinds_and_names_must_be_there_and_known() {
    let text = "apiVersion: resource.k8s.io/v1alpha2\nkind: DeviceClass\nmetadata: {name: a}\n---\nkind: Pod\n---\n\
                apiVersion: v1\nkind: Pod\n---\n- a\n";
    let (_, problems) = read(text);
    let expected = [
        "x.yaml: document 1 (DeviceClass a), line 1: apiVersion: \"resource.k8s.io/v1alpha2\" is not known; write \
         resource.k8s.io/v1",
        "x.yaml: document 2 (Pod): apiVersion: it is missing",
        "x.yaml: document 3 (Pod): metadata.name: it is missing; give the object a name",
    ];
    assert_eq!(problems[..3], expected);
    assert!(problems[3].starts_with("x.yaml: document 4"), "{problems:?}");
}

#[test]
fn files_lie_over_a_cluster() {
    let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
    let text = |node: &str| InputText {
        name: "x".to_owned(),
        text: format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{nodeName: {node}}}\n"),
    };
    manifests.read(&text("a"), InputLayer::Base, &mut problems);
    manifests.read(&text("b"), InputLayer::Files, &mut problems);
    assert_eq!(problems, []);
    assert_eq!(manifests.pods[&ObjectKey::new("", "p")].node(), Some("b"));
}
