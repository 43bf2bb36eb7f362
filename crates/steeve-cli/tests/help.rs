//! Every help text, as it stands in `tests/golden/help`. `STEEVE_UPDATE=1 cargo test -p steeve-cli --test help` writes them
//! anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::path::Path;

use crate::harness::{golden, steeve};

const COMMANDS: [&str; 12] =
    ["plan", "fit", "view", "show", "diff", "compare", "check", "record", "estimate", "devices", "completions", "man"];

#[test]
fn every_help_text_is_what_it_was() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help").join(format!("{name}.txt"));
    golden(&file("steeve"), &steeve(&["--help"]).expect(0).out);
    for command in COMMANDS {
        let said = steeve(&[command, "--help"]);
        assert!(said.expect(0).out.contains(&format!("Examples:\n  steeve {command} ")), "{}", said.out);
        assert_eq!(steeve(&["help", command]).expect(0).out, said.out);
        golden(&file(command), &said.out);
        assert!(said.out.lines().all(|line| line.len() <= 124), "{command} has lines that are too long");
    }
}

#[test]
fn the_list_of_commands_is_complete() {
    let help = steeve(&["--help"]).expect(0).out.clone();
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let listed: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for command in COMMANDS {
        assert!(listed.contains(&command), "{listed:?}");
    }
    assert_eq!(listed.len(), COMMANDS.len() + 1, "{listed:?} and help");
}

#[test]
fn every_command_has_a_manual_page() {
    let page = steeve(&["man"]).expect(0).out.clone();
    assert!(page.contains(".TH steeve 1"), "{page}");
    for command in COMMANDS {
        assert!(page.contains(&format!("steeve\\-{command}(1)")), "the page of steeve does not name {command}: {page}");
        let page = steeve(&["man", command]).expect(0).out.clone();
        assert!(page.contains(&format!(".TH steeve-{command} 1")) && page.contains(".SH EXAMPLES"), "{page}");
    }
    steeve(&["man", "packing"]).expect(2).complains(&["no such command", "packing", "plan"]);
}
