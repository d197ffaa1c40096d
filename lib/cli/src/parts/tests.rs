//! Parts of a list of claims.

use clap::{CommandFactory, Parser};
use serde_json::{Value, json};

use super::*;
use crate::output::{ListFormat, OutputFormat};

fn claims() -> Value {
    json!({"kind": "ClaimList", "items": [
        {"name": "train", "state": "prepared", "age": 90, "devices": [{"name": "numa0"}, {"name": "node0"}],
         "taken": {"hugepages-2Mi": "1Gi", "hostler.dev/model": "x"}, "problem": null},
        {"name": "web", "state": "preparing", "age": 5, "devices": []},
    ]})
}

/// The parts of the list, or the mistake.
fn written(chosen: &str) -> String {
    let parts = match DocumentParts::parse(chosen).unwrap() {
        Ok(parts) => parts,
        Err(error) => return error.to_string(),
    };
    let mut out = Vec::new();
    parts.write(&claims(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn paths_lead_where_those_of_kubectl_lead() {
    for (path, expected) in [
        ("{.items[*].name}", "train web"),
        (".items[*].name", "train web"),
        ("{$.items[0].name}", "train"),
        ("{.items[-1].name}", "web"),
        ("{.items[0:1].name}", "train"),
        ("{.items[::2].name}", "train"),
        ("{.items[-1:].name}", "web"),
        ("{.items[1,0].name}", "web train"),
        ("{.items[0]['name','state']}", "train prepared"),
        ("{.items[0][\"name\"]}", "train"),
        ("{.items[*].devices[*].name}", "numa0 node0"),
        ("{.items[0].devices}", r#"[{"name":"numa0"},{"name":"node0"}]"#),
        ("{.items[0].taken.hugepages-2Mi}", "1Gi"),
        (r"{.items[0].taken.hostler\.dev/model}", "x"),
        ("{.items[0].taken['hostler.dev/model']}", "x"),
        ("{.items[0].taken.*}", "x 1Gi"),
        ("{..devices[*].name}", "numa0 node0"),
        ("{.items[9].name}", ""),
        ("{.items.name}", ""),
        ("{.kind}: {.items[*].age}", "ClaimList: 90 5"),
        (r#"{range .items[*]}{.name}{"\t"}{.age}{"\n"}{end}"#, "train\t90\nweb\t5\n"),
        (
            "{range .items[*]}{.name}:{range .devices[*]} {.name} of {$.kind}{end};{end}",
            "train: numa0 of ClaimList node0 of ClaimList;web:;",
        ),
    ] {
        assert_eq!(written(&format!("jsonpath={path}")), expected, "{path}");
    }
}

#[test]
fn filters_compare_texts_and_numbers_and_ask_for_what_is_there() {
    for (filter, expected) in [
        (r#"@.state=="prepared""#, "train"),
        ("@.state != 'prepared'", "web"),
        ("@.age > 5", "train"),
        ("@.age>=5", "train web"),
        ("@.age <= 5.0", "web"),
        ("@.age < 5", ""),
        ("@.taken", "train"),
        ("@.problem == null", "train"),
        ("@.state == $.items[1].state", "web"),
        ("@.name == 90", ""),
        ("@.absent != 1", ""),
    ] {
        assert_eq!(written(&format!("jsonpath={{.items[?({filter})].name}}")), expected, "{filter}");
    }
}

#[test]
fn columns_are_those_of_kubectl_and_what_is_not_there_is_said() {
    let expected = "NAME   STATE      DEVICES      PROBLEM\ntrain  prepared   numa0,node0  <none>\nweb    preparing  <none>       <none>\n";
    for columns in [
        "NAME:.name,STATE:.state,DEVICES:.devices[*].name,PROBLEM:.problem",
        "NAME:{.name}, STATE:{.state}, DEVICES:{.devices[*].name}, PROBLEM:{.absent}",
        "NAME:name,STATE:state,DEVICES:devices[*].name,PROBLEM:problem",
    ] {
        assert_eq!(written(&format!("custom-columns={columns}")), expected, "{columns}");
    }
}

#[test]
fn a_document_that_is_no_list_is_one_row() {
    let DocumentParts(ChosenParts::Columns(columns)) = DocumentParts::parse("custom-columns=A:.a").unwrap().unwrap()
    else {
        panic!("they are columns")
    };
    assert_eq!(columns.table(&json!({"a": 1})), "A\n1\n");
}

#[test]
fn every_mistake_is_told_with_its_column() {
    for (chosen, expected) in [
        ("jsonpath=", "column 1: expected a path, such as .items[*].name, found the end"),
        ("jsonpath={}", "column 2: expected a path, such as .items[*].name, found }"),
        ("jsonpath={.items[}", "column 9: expected *, a number, a range, a quoted name or ?(…), found }"),
        ("jsonpath={.items[*}", "column 10: expected ], found }"),
        ("jsonpath={.items", "column 8: expected }, found the end"),
        ("jsonpath=.items}", "column 7: no { opens this }"),
        ("jsonpath={.items..}", "column 10: expected a name, found }"),
        ("jsonpath={.a. b}", "column 5: expected a name, found  "),
        ("jsonpath={.a b}", "column 5: expected }, found b"),
        ("jsonpath={range .items[*]}{.name}", "column 1: no {end} closes this {range}"),
        ("jsonpath={.a}{end}", "column 5: no {range} opens this {end}"),
        ("jsonpath={\"a}", "column 2: no \" ends this text"),
        (r#"jsonpath={"\x"}"#, r#"column 3: behind \ stands one of n t r \ ' ""#),
        ("jsonpath={.a[0:1:0]}", "column 9: the step of a range is 1 or more"),
        ("jsonpath={.a[-]}", "column 5: - is no place in a list"),
        ("jsonpath={.a[?@.b]}", "column 6: expected (, found @"),
        ("jsonpath={.a[?(@.b = 1)]}", "column 11: expected one of == != < <= > >= ), found ="),
        (
            "jsonpath={.a[?(@.b == c)]}",
            "column 14: expected a path (@.name), a quoted text, a number, true, false or null",
        ),
        ("custom-columns=", "column 1: expected HEADING:PATH, such as NAME:.name"),
        ("custom-columns=NAME", "column 5: expected :, found the end"),
        ("custom-columns=NAME:.a,", "column 9: expected HEADING:PATH, such as NAME:.name"),
        ("custom-columns=NAME:.a STATE:.b", "column 9: expected ,, found S"),
        ("custom-columns=NAME:,STATE:.b", "column 6: expected a path, such as .items[*].name, found ,"),
        ("custom-columns=ÄÖ:{.a", "column 7: expected }, found the end"),
    ] {
        assert_eq!(written(chosen), expected, "{chosen}");
    }
}

#[derive(Debug, Parser)]
struct Alone {
    /// Shape
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    output: ListFormat,
    /// Shape of one
    #[arg(long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    one: OutputFormat,
}

#[test]
fn an_option_takes_names_and_parts_and_says_what_is_wrong_with_others() {
    let read = |text: &str| Alone::try_parse_from(["alone", "-o", text]);
    let read_ok = |text: &str| read(text).unwrap().output;
    assert_eq!(Alone::try_parse_from(["alone"]).unwrap().output, ListFormat::Table);
    assert_eq!(read_ok("name"), ListFormat::Name);
    let of_items = DocumentParts::parse("jsonpath={.items}").unwrap().unwrap();
    assert!(matches!(read_ok("jsonpath={.items}"), ListFormat::Parts(parts) if *parts == of_items));
    assert!(matches!(
        Alone::try_parse_from(["alone", "--one=custom-columns=A:.a"]).unwrap().one,
        OutputFormat::Parts(_)
    ));
    let error = read("jsonpath={.items[}").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let error = error.to_string();
    assert!(
        error.starts_with("error: invalid value 'jsonpath={.items[}' for '--output <OUTPUT>': column 9: "),
        "{error}"
    );
    let error = read("jsn").unwrap_err().to_string();
    assert!(error.contains("json, yaml, name, jsonpath=…, custom-columns=…") && error.contains("'json'"), "{error}");
}

#[test]
fn help_and_shells_know_of_parts() {
    Alone::command().debug_assert();
    let help = Alone::command().render_long_help().to_string();
    assert!(help.contains("jsonpath=") && help.contains("custom-columns="), "{help}");
}
