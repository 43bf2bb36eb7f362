//! The static library in place of ggml's own object file. It is built here, with the feature `whole`, in a folder of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::path::Path;
use std::process::Command;

use harness::{Workshop, said};

#[test]
fn the_static_library_stands_in_for_ggmls_object_file() {
    let Some(workshop) = Workshop::open("whole") else { return };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("whole");
    let built = said(
        Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "--offline", "--lib", "--crate-type", "staticlib", "--features", "whole"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", &target)
            // Soon done is what counts.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    );
    assert_eq!(built.status, Some(0), "{}", built.err);
    let library = target.join("debug/libsteeve_ggml.a");
    let include = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
    let link = [library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    // `ggml_op_can_inplace` is in the object file that is replaced.
    let sources = ["whole.c", "main.c", "ggml.c"];
    let program = workshop.cc("whole", &sources, &link, &[&include, "-DMOCK_WHOLE"]);
    let said = said(&mut Command::new(program)).well();
    let lines = said.lines();
    assert!(
        lines.contains(&"steeve: tensor the last: out of memory: 560 bytes requested, aligned to 64, 488 available"),
        "{lines:?}"
    );
}
