//! Other orders of the nodes, from the command: planned, shown, compared, written and checked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};

const GRAPH: &str = "x = input f32[64]
wide = repeat f32[4096] x
a = repeat f32[4096] x
b = sum_rows a
y = add f32[4096] wide b !output
";

/// Returns a folder of the test's own, with the graph in it.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("orders").join(test);
    // From an earlier run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("net.graph"), GRAPH).unwrap();
    folder
}

fn steeve(folder: &PathBuf, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steeve")).args(arguments).current_dir(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn plan_says_what_another_order_needs_and_how_many_nodes_move() {
    let folder = folder("plan");
    let own = steeve(&folder, &["plan", "net.graph", "--json"]);
    assert!(text(&own).contains("\"peak\":33024") && !text(&own).contains("moved"), "{}", text(&own));
    let best = steeve(&folder, &["plan", "net.graph", "--order", "best", "--json"]);
    assert!(text(&best).contains("\"moved\":1") && text(&best).contains("\"peak\":16644"), "{}", text(&best));
    let table = text(&steeve(&folder, &["plan", "net.graph", "--order", "best"]));
    assert!(table.lines().next().unwrap().ends_with("moved"), "{table}");
}

#[test]
fn a_plan_file_in_another_order_is_checked_and_one_whose_order_means_something_else_is_refused() {
    let folder = folder("check");
    let planned = steeve(&folder, &["plan", "net.graph", "--order", "best", "-o", "plan.json"]);
    assert!(planned.status.success(), "{}", text(&planned));
    let json = std::fs::read_to_string(folder.join("plan.json")).unwrap();
    assert!(json.contains("\"order\":[1,2,0,3]"), "{json}");
    let checked = steeve(&folder, &["check", "net.graph", "plan.json"]);
    assert!(checked.status.success(), "{}", text(&checked));
    for (order, why) in [
        ("[2,1,0,3]", "reads"),
        ("[1,2,0]", "expected 4 nodes, got 3"),
        ("[1,2,0,0]", "node 0 runs at 2 and at 3"),
        ("[1,2,0,4]", "expected a node below 4, got 4"),
    ] {
        std::fs::write(folder.join("other.json"), json.replace("[1,2,0,3]", order)).unwrap();
        let checked = steeve(&folder, &["check", "net.graph", "other.json"]);
        assert_eq!(checked.status.code(), Some(1), "{order}: {}", text(&checked));
        assert!(text(&checked).contains(why), "{order}: {}", text(&checked));
    }
}

#[test]
fn show_and_compare_tell_what_another_order_would_save() {
    let folder = folder("show");
    let shown = text(&steeve(&folder, &["show", "net.graph", "--bytes"]));
    assert!(shown.contains("another order of the nodes needs 16644"), "{shown}");
    let json = text(&steeve(&folder, &["show", "net.graph", "--json"]));
    assert!(json.contains("\"other_order\":{\"peak\":16644,\"moved\":1}"), "{json}");
    let ordered = text(&steeve(&folder, &["show", "net.graph", "--order", "best"]));
    assert!(!ordered.contains("another order"), "{ordered}");
    let compared = text(&steeve(&folder, &["compare", "net.graph", "--bytes"]));
    assert!(compared.contains("order best") && compared.contains("16644"), "{compared}");
}

#[test]
fn an_order_is_refused_where_it_belongs_to_another() {
    let folder = folder("refuse");
    std::fs::write(folder.join("blocks.csv"), "id,lower,upper,size\na,0,1,16\n").unwrap();
    for arguments in [
        &["plan", "net.graph", "--order", "best", "--strategy", "ggml"][..],
        &["plan", "net.graph", "--order", "best", "--as", "drop-in"],
        &["plan", "blocks.csv", "--order", "best"],
        &["view", "net.graph", "--order", "best", "-o", "net.h"],
    ] {
        let refused = steeve(&folder, arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", text(&refused));
        assert!(text(&refused).contains("order"), "{arguments:?}: {}", text(&refused));
    }
    assert!(!folder.join("net.h").exists());
}
